"""The end of a run, as text."""

import re

import msgspec
from rich.text import Text

from conformance.core.invocation import Invocation
from conformance.core.verdict import Verdict
from conformance.report.outcome import Outcome
from conformance.report.terminal import render, summary
from conformance.report.terminal_matrix import FEW_FAMILIES

LADDER = ("repeat", "ragged", "early_finish")


def text_of(*results, width=100, **more):
    known = {key: more.pop(key) for key in ("problems", "missing", "seconds") if key in more}
    return summary(Outcome(results, LADDER, **known), width=width, **more).plain


def many(result, count, verdict=Verdict.EXACT, **changes):
    return [
        result(f"e/family{i:03}/{scenario}/d/0", verdict, **changes)
        for i in range(count)
        for scenario in LADDER
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


def test_many_families_that_are_all_clean_need_no_table(result):
    text = text_of(*many(result, 126))
    assert "  126 families: exact or tie in every scenario" in text
    assert "|" not in text


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
