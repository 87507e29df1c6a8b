"""The matrix as data."""

from conformance.core.verdict import Verdict
from conformance.report.matrix import GLYPHS, Cell, matrices


def test_every_verdict_has_a_glyph_of_its_own():
    assert set(GLYPHS) == set(Verdict)
    assert len(set(GLYPHS.values())) == len(Verdict)
    assert all(glyph.isascii() and len(glyph) == 1 for glyph in GLYPHS.values())


def test_columns_have_the_given_order_and_rows_are_sorted(result):
    cases = ["e/z/wide/f/0", "e/z/alone/f/0", "e/b/repeat/f/0", "e/b/new/f/0"]
    (found,) = matrices([result(case) for case in cases], ["repeat", "alone", "wide"])
    assert found.scenarios == ("repeat", "alone", "wide", "new")
    assert [row.family for row in found.rows] == ["b", "z"]


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
