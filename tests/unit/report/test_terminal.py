"""The end of a run, as text."""

import itertools
import re

import msgspec
import pytest
from rich.text import Text

from conformance.core.invocation import Invocation
from conformance.core.verdict import MendedResult, Verdict
from conformance.report.matrix import matrices
from conformance.report.outcome import Outcome
from conformance.report.terminal import (
    FEW_FAMILIES,
    MOST_LINES,
    broken,
    is_cut,
    legend_text,
    letters_for,
    matrix_text,
    render,
    style_of,
    summary,
)
from conformance.scenarios import LADDER

RUNGS = ("repeat", "ragged", "early_finish")


def text_of(*results, width=100, **more):
    known = {key: more.pop(key) for key in ("problems", "missing", "seconds") if key in more}
    return summary(Outcome(results, RUNGS, **known), width=width, **more).plain


def many(result, count, verdict=Verdict.EXACT, **changes):
    return [
        result(f"e/family{i:03}/{scenario}/d/0", verdict, **changes)
        for i in range(count)
        for scenario in RUNGS
    ]


def test_the_last_line_says_it_all(result, finding):
    good = text_of(result(), seconds=312.0)
    assert good.splitlines()[-1] == "OK: 1 case, all as expected, in 5 min 12 s"
    bad = text_of(result(verdict=Verdict.DRIFT), problems=("p",), missing=2)
    assert bad.splitlines()[-1] == (
        "FAILED: 1 of 1 case not as expected, 1 other problem, 2 cases not run, in 0.00 s"
    )


def test_names_of_scenarios_stand_on_their_columns(result):
    lines = text_of(*many(result, 1)).splitlines()
    end = next(i for i, line in enumerate(lines) if line.startswith("  family000"))
    columns = [i for i, glyph in enumerate(lines[end]) if glyph == "."]
    names = [
        [line[start : start + 7].strip() for line in lines[end - 2 : end]] for start in columns
    ]
    assert names == [["", "repeat"], ["", "ragged"], ["early", "finish"]]


def test_few_families_are_all_shown(result):
    text = text_of(*many(result, FEW_FAMILIES))
    assert text.count("  family") == FEW_FAMILIES
    assert "in every scenario" not in text


def test_of_many_families_only_those_with_something_to_report(result):
    bad = result("e/bad/ragged/d/0", Verdict.DIVERGED)
    known = result("e/known/ragged/d/0", Verdict.DRIFT, expected=True)
    refused = result("e/refused/ragged/d/0", Verdict.UNSUPPORTED, expected=True)
    text = text_of(*many(result, 40), bad, known, refused, failures=False)
    matrix = text[text.index("e d: 43 families x 3 scenarios") :]
    assert re.search(r"^  bad +X!$", matrix, re.MULTILINE)
    assert re.search(r"^  known +~$", matrix, re.MULTILINE)
    assert "  family" not in matrix
    assert "more 40 families: exact or tie in every scenario" in matrix
    assert "more 1 family: unsupported in every scenario" in matrix


def test_a_whole_ladder_of_all_families_fits_a_screen(result):
    ladder = [f"scenario_{i:02}" for i in range(18)]
    bad = [result(f"e/a_family_of_24_letters__/{s}/d/0", Verdict.DRIFT) for s in ladder]
    results = (*many(result, 125), *bad)
    text = summary(Outcome(results, tuple(ladder)), width=80, failures=False).plain
    sentence, *lines = text.splitlines()
    assert sentence.startswith("a_family_of_24_letters__: 18 cases fail, first at `scenario_00`: ")
    assert max(map(len, lines)) <= 80
    assert len(lines) < 50


def test_the_legend_explains_what_occurs_and_nothing_else(result):
    text = text_of(result(), result("e/a/ragged/d/0", Verdict.NAN, expected=True))
    legend = next(line for line in text.splitlines() if "blank" in line)
    assert ". exact" in legend
    assert "N nan" in legend
    assert "crash" not in legend
    assert "not expected" not in legend


def test_each_unexpected_case_is_reported_unless_pytest_does(result, finding):
    bad = result(verdict=Verdict.DIVERGED, evidence=(finding(),))
    assert "cause:" in text_of(bad)
    assert "cause:" not in text_of(bad, failures=False)
    mine = Invocation("", "", ("--family-file", "x"))
    assert "show --family-file x" in text_of(msgspec.structs.replace(bad, invocation=mine))


def test_problems_and_totals_are_there(result):
    text = text_of(
        result(), result(verdict=Verdict.DRIFT, expected=True), problems=("novel is uncovered",)
    )
    assert "\nnovel is uncovered\n" in text
    assert re.search(r"^  exact +1$", text, re.MULTILINE)
    assert re.search(r"^  drift +1  all as expected$", text, re.MULTILINE)


def test_a_run_that_never_began_has_a_last_line_all_the_same():
    assert text_of(missing=3) == "FAILED: 3 cases not run, in 0.00 s"


def test_colour_and_none():
    text = Text("X!", style="bold red")
    assert render(text, colour=False) == "X!"
    assert "\x1b[1;31mX!" in render(text, colour=True)


def test_long_lines_are_not_broken():
    line = "word " * 80
    assert render(Text(line), colour=False).count("\n") == 0


def test_brief_leaves_failures_problems_and_the_last_line(result):
    bad = result("e/a/ragged/d/0", Verdict.DRIFT)
    text = text_of(result(), bad, problems=("novel is uncovered",), brief=True)
    sentence, head = text.splitlines()[:2]
    assert sentence.startswith("a (e, d): 1 case fails, at `ragged`: ")
    assert head == "drift: e/a/ragged/d/0"
    assert "\n\nnovel is uncovered\n\nFAILED: " in text
    assert "totals" not in text
    assert "slowest" not in text


def test_known_defects_are_named_those_of_most_cases_first(result):
    cases = [
        result(f"e/f/ragged/d/{seed}", Verdict.DRIFT, known=known)
        for seed, known in enumerate(("a", "b, a", "c", "d, a", "b"))
    ]
    text = text_of(*cases)
    assert "  known: a, b, c and 1 more; each: conformance show defects ID\n" in text
    assert "show defects" not in text_of(result())


def test_schedules_that_a_server_does_not_offer_are_named(result, finding):
    lacks = finding(Verdict.UNSUPPORTED, schedule="fields", got="NotOffered: top_logprobs: no")
    text = text_of(result("http/served/served_alone/d/0", evidence=(lacks,)))
    assert "  not offered, the other schedules were: served_alone/fields" in text.splitlines()
    text = text_of(result("http/s/served_stops/d/0", Verdict.UNSUPPORTED, evidence=(lacks,)))
    assert "  not offered: served_stops: top_logprobs: no" in text.splitlines()
    alone = result("http/served/served_alone/d/0", Verdict.UNSUPPORTED, evidence=(lacks,))
    assert "the other schedules" not in text_of(alone)


# A matrix in terminals of several widths ----------------------------------------------------------

SCENARIOS = [f"scenario_{n:02}" for n in range(30)]
LONG = "a_family_of_24_letters__"


def matrix_of(result, families, scenarios=SCENARIOS):
    found = [
        result(f"engine/{f}/{s}/float32/0", Verdict.DRIFT if int(s[-2:]) == 7 else Verdict.EXACT)
        for f in families
        for s in scenarios
    ]
    return matrices(found)[0]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_no_line_is_longer_than_the_terminal_and_no_cell_is_lost(result, width):
    found = matrix_of(result, ["llama", LONG])
    lines = matrix_text(found, width).plain.splitlines()
    assert max(map(len, lines)) <= width
    rows = [line for line in lines if line.startswith("  llama ")]
    assert "".join(row.replace("llama", "").replace(" ", "") for row in rows) == (
        "." * 7 + "~!" + "." * 22
    )


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("count", [20, 38])
def test_no_name_of_the_ladder_is_broken_where_it_has_no_room_above_its_column(
    result, width, count
):
    scenarios = [scenario.name for scenario in LADDER][:count]
    found = matrices([result(f"engine/llama/{name}/float32/0") for name in scenarios], scenarios)[0]
    lines = matrix_text(found, width).plain.splitlines()
    assert max(map(len, lines)) <= width
    rows = [index for index, line in enumerate(lines) if line.startswith("  llama")]
    seen, above = [], 0
    for row in rows:
        head = lines[above + 1 : row]
        for column in (i for i, glyph in enumerate(lines[row]) if glyph == "."):
            over = [line[column] if column < len(line) else " " for line in head]
            own = max(n for n, letter in enumerate(over) if letter not in " |")
            seen.append(head[own][: column + 1].split()[-1])
            assert set(over[own + 1 :]) <= {"|"}, "only a line leads from a name to its column"
        above = row
    assert seen == scenarios


@pytest.mark.parametrize("width", [36, 39])
@pytest.mark.parametrize("scenarios", [SCENARIOS, [scenario.name for scenario in LADDER]])
def test_each_column_has_its_name_above_it_in_six_lines_at_most(result, width, scenarios):
    found = matrices([result(f"e/llama/{name}/float32/0") for name in scenarios], scenarios)[0]
    lines = matrix_text(found, width).plain.splitlines()
    rows = [index for index, line in enumerate(lines) if line.startswith("  llama")]
    names, above = [], 0
    for row in rows:
        head = lines[above + 1 : row]
        assert len(head) <= MOST_LINES
        columns = [i for i, glyph in enumerate(lines[row]) if glyph == "."]
        edges = [*columns, width]
        names += [
            "".join(line[start:end].strip() for line in head)
            for start, end in itertools.pairwise(edges)
        ]
        above = row
    assert names == [name.replace("_", "") for name in scenarios]


def test_a_name_that_is_cut_is_below_in_full(result):
    long = "a_scenario_of_somebody_with_a_long_name"
    found = matrices([result(f"e/llama/{name}/float32/0") for name in (long, *SCENARIOS)])[0]
    assert matrix_text(found, 60).plain.splitlines()[-1] == f"  in full: {long}"
    assert "in full" not in matrix_text(matrix_of(result, ["llama"]), 80).plain


def test_a_long_name_is_cut_only_where_there_is_no_room(result):
    found = matrix_of(result, [LONG])
    assert LONG in matrix_text(found, 40).plain
    assert LONG[:12] + ".." in matrix_text(found, 26).plain


@pytest.mark.parametrize("width", [40, 80])
def test_the_legend_fits_too(result, width):
    found = [result(f"e/{v}/x/d/0", v) for v in Verdict]
    text = legend_text(matrices(found), width).plain
    assert max(map(len, text.splitlines())) <= width
    assert all(f" {verdict}" in text for verdict in Verdict)
    assert "! not expected" in text


def test_the_legend_has_the_mark_of_what_is_right_once_mended(result):
    mended = MendedResult(Verdict.EXACT, ("a",))
    known = {"expected": True, "known": "a"}
    plain = result("e/a/x/f/0", Verdict.CRASH, **known)
    repaired = result("e/b/x/f/0", Verdict.CRASH, **known, mended=mended)
    (found,) = matrices([plain, repaired])
    assert [row.cells[0].text for row in found.rows] == ["C", "C'"]
    assert "' known, right once mended" in legend_text([found], 80).plain
    assert "once mended" not in legend_text(matrices([plain]), 80).plain
    assert style_of(found.rows[0].cells[0]) != style_of(found.rows[1].cells[0])


def test_the_legend_says_which_cells_were_not_run_as_released(result):
    known = {"expected": True, "known": "a"}
    mended = MendedResult(Verdict.EXACT, ("a",), alone=True)
    alone = result("e/a/x/f/0", Verdict.EXACT, **known, mended=mended)
    plain = result("e/b/x/f/0", Verdict.EXACT)
    (found,) = matrices([alone, plain])
    assert [row.cells[0].text for row in found.rows] == [".'", "."]
    assert [row.clean for row in found.rows] == [False, True]
    text = legend_text([found], 80).plain
    assert ".' exact, run only with known defects mended" in text
    assert "right once mended" not in text
    assert "run only" not in legend_text(matrices([plain]), 80).plain
    assert style_of(found.rows[0].cells[0]) != style_of(found.rows[1].cells[0])


# Names of columns broken into the lines of their heads -------------------------------------------

NAMES = [scenario.name for scenario in LADDER]


@pytest.mark.parametrize(
    ("name", "letters", "lines"),
    [
        ("ragged", 3, ["rag", "ged"]),
        ("ragged", 5, ["rag", "ged"]),
        ("ragged", 6, ["ragged"]),
        ("early_finish", 4, ["ear", "ly", "fin", "ish"]),
        ("media_in_pieces", 3, ["med", "ia", "in", "pie", "ces"]),
        ("a_b_c_d_ef_g_hi", 3, ["abc", "def", "ghi"]),
        ("one_two_three_four_five", 3, ["one", "two", "thr", "eef", "our", "fi."]),
        ("", 3, []),
    ],
)
def test_a_name_is_broken_at_its_words_and_these_evenly(name, letters, lines):
    assert broken(name, letters) == lines
    assert is_cut(name, letters) == any(line.endswith(".") for line in lines)


def test_no_scenario_of_the_ladder_is_cut_even_where_it_is_narrowest():
    assert not any(is_cut(name, 3) for name in NAMES)
    assert max(len(broken(name, 3)) for name in NAMES) <= MOST_LINES


@pytest.mark.parametrize(("room", "letters"), [(200, 6), (147, 6), (120, 5), (60, 5), (19, 3)])
def test_lines_are_as_long_as_the_same_number_of_blocks_allows(room, letters):
    found = [f"abcdef_{number:02}" for number in range(20)]
    assert letters_for(found, room) == letters
