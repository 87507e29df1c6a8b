"""The matrix as data."""

from conformance.core.verdict import Verdict
from conformance.report.matrix import GLYPHS, Cell, matrices


def test_every_verdict_has_a_glyph_of_its_own():
    assert set(GLYPHS) == set(Verdict)
    assert len(set(GLYPHS.values())) == len(Verdict)
    assert all(glyph.isascii() and len(glyph) == 1 for glyph in GLYPHS.values())


def test_one_matrix_for_each_engine_and_dtype(result):
    found = matrices(
        [
            result("b/llama/ragged/float32/0"),
            result("a/llama/ragged/float32/0"),
            result("a/llama/ragged/float16/0"),
        ]
    )
    assert [(m.engine, m.dtype) for m in found] == [
        ("b", "float32"),
        ("a", "float32"),
        ("a", "float16"),
    ]


def test_columns_have_the_given_order_and_rows_are_sorted(result):
    cases = ["e/z/wide/f/0", "e/z/alone/f/0", "e/b/repeat/f/0", "e/b/new/f/0"]
    (found,) = matrices([result(case) for case in cases], ["repeat", "alone", "wide"])
    assert found.scenarios == ("repeat", "alone", "wide", "new")
    assert [row.family for row in found.rows] == ["b", "z"]


def test_what_was_not_run_is_no_cell(result):
    (found,) = matrices([result("e/a/x/f/0"), result("e/b/y/f/0")])
    good = Cell(Verdict.EXACT, expected=True)
    assert [row.cells for row in found.rows] == [(good, None), (None, good)]


def test_of_several_seeds_the_worst_is_shown(result):
    known = result("e/a/x/f/1", Verdict.CRASH, expected=True)
    surprise = result("e/a/x/f/2", Verdict.DRIFT)
    (found,) = matrices([result("e/a/x/f/0"), known])
    assert found.rows[0].cells == (Cell(Verdict.CRASH, expected=True),)
    (found,) = matrices([surprise, known])
    assert found.rows[0].cells == (Cell(Verdict.DRIFT, expected=False),)


def test_what_is_not_expected_has_a_mark(result):
    assert Cell(Verdict.DIVERGED, expected=False).text == "X!"
    assert Cell(Verdict.DIVERGED, expected=True).text == "X"
    assert Cell(Verdict.EXACT, expected=False).text == ".!"
    assert Cell(Verdict.DIVERGED, expected=True, mended=True).text == "X'"


def test_a_row_is_clean_only_if_all_is_good_and_wanted(result):
    def clean(*changed):
        (found,) = matrices([result("e/a/x/f/0"), *changed])
        return found.rows[0].clean

    assert clean(result("e/a/y/f/0", Verdict.TIE))
    assert not clean(result("e/a/y/f/0", Verdict.DRIFT, expected=True))
    assert not clean(result("e/a/y/f/0", Verdict.EXACT, expected=False))


def test_a_row_is_unsupported_only_as_a_whole(result):
    refused = result("e/a/x/f/0", Verdict.UNSUPPORTED, expected=True)
    (found,) = matrices([refused])
    assert found.rows[0].unsupported
    (found,) = matrices([refused, result("e/a/y/f/0")])
    assert not found.rows[0].unsupported
