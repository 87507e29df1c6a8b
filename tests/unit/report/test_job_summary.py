"""The summary page of a job."""

import re

from conformance.core.verdict import Verdict
from conformance.report.comparison import compare
from conformance.report.job_summary import MOST, MOST_BYTES, error_annotations, job_summary
from conformance.report.outcome import Outcome

LADDER = ("repeat", "ragged")


def of(*results, problems=(), **more):
    return job_summary(Outcome(results, LADDER, problems), **more)


def test_a_clean_run(result):
    text = of(result("e/a/repeat/d/0"), result("e/a/ragged/d/0"))
    assert text.startswith("## Conformance: 2 cases, all as expected\n")
    assert "Not as expected" not in text
    assert "| `.` | exact | 2 |  |" in text
    assert "Exact or tie in every scenario: 1 family; unsupported: 0." in text
    assert "On `cpu`; `mlx 0.32.4, mlx-lm 0.32.2`." in text


def test_changed_cells_come_first_then_failures_then_totals_then_the_matrix(result, finding):
    bad = result("e/a/ragged/d/0", Verdict.DIVERGED, evidence=(finding(),))
    good = result("e/a/repeat/d/0")
    found = compare([good, result("e/a/ragged/d/0")], [good, bad])
    text = of(good, bad, problems=("novel is uncovered",), found=found)
    parts = (
        "## Conformance: 1 of 2 cases not as expected, 1 other problem",
        "### Conformance: regressed",
        "| `a` | **`. > X!`** |",
        "- `novel is uncovered`",
        "1. `a: 1 case fails, at ragged: the token differs.` Evidence: `conformance show ",
        "### Totals by verdict",
        "### `e d`: 1 family x 2 scenarios",
        "| `a` | `.` | **`X!`** |",
    )
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    alone = of(good, bad)
    assert alone.count("the token differs") == alone.count("e/a/ragged/d/0") == 1, "each thing once"


def test_the_other_cases_of_a_finding_are_in_a_table_with_its_number(result, finding):
    one = result("e/a/repeat/d/0", Verdict.LEAK, evidence=(finding(Verdict.LEAK, check="leak"),))
    bad = [
        result(f"e/b/{name}/d/0", Verdict.DIVERGED, evidence=(finding(what=f"wrong in {name}"),))
        for name in LADDER
    ]
    text = of(one, *bad)
    assert "### Other cases of these findings (1)" in text
    (row,) = [line for line in text.splitlines() if "wrong in ragged" in line]
    number = [line.startswith("1. `b: ") for line in text.splitlines() if line.startswith("1. ")]
    where = number.index(True) + 1
    assert row == f"| {where} | `e/b/ragged/d/0` | diverged | `wrong in ragged` |"


def test_a_huge_run_fits_and_keeps_what_matters_most(result, finding):
    evidence = (finding(what="\u00e9" * 400),)
    before = [result(f"e/family{n}/s{n % 30}/d/0") for n in range(2500)]
    after = [result(r.case, Verdict.DRIFT, evidence=evidence) for r in before]
    text = of(*after, found=compare(before, after))
    assert len(text.encode()) <= MOST_BYTES
    assert "`. > ~!`" in text[:3000]
    assert text.endswith("more lines are left out.\n")


def test_names_cannot_break_out(result, finding):
    evil = "e/<td><img src=x>|@me/ragged/d/0"
    text = of(result(evil, Verdict.CRASH, evidence=(finding(what="[x](javascript:y)\n# z"),)))
    outside = re.sub(r"(`+).*?\1", "", text.replace("\\|", ""))
    assert not re.search(r"<|@|javascript", outside)
    assert "\n# z" not in text


def test_many_problems_do_not_push_the_cases_away(result):
    text = of(result(), problems=tuple(f"problem {n}" for n in range(400)))
    assert text.count("- `problem") == 50
    assert "- and 350 more\n" in text


# Annotations of a GitHub run ----------------------------------------------------------------------


def bad(result, finding, case, verdict=Verdict.DIVERGED, **changes):
    return result(case, verdict, evidence=(finding(verdict, **changes),))


def errors(results, problems=()):
    return error_annotations(Outcome(tuple(results), ("repeat", "ragged")).cascades, problems)


def test_one_for_each_finding_and_the_other_cases_are_named(result, finding):
    found = errors(
        [
            result("a/good/ragged/d/0"),
            result("a/known/ragged/d/0", Verdict.DRIFT, expected=True),
            bad(result, finding, "a/x/ragged/d/0"),
            bad(result, finding, "a/x/ragged/d/1"),
            bad(result, finding, "a/x/repeat/d/0", Verdict.CRASH),
            bad(result, finding, "b/x/ragged/d/0"),
        ]
    )
    assert found == (
        "::error title=conformance a/x::x (a): 1 case fails, at `repeat`: the token differs.%0A"
        "crash: a/x/repeat/d/0%0Arerun: conformance show a/x/repeat/d/0",
        "::error title=conformance a/x::x (a): 2 cases fail, first at `ragged`: the token differs."
        "%0Adiverged: a/x/ragged/d/0%0Arerun: conformance show a/x/ragged/d/0"
        "%0Aand 1 more: a/x/ragged/d/1",
        "::error title=conformance b/x::x (b): 1 case fails, at `ragged`: the token differs.%0A"
        "diverged: b/x/ragged/d/0%0Arerun: conformance show b/x/ragged/d/0",
    )


def test_ten_at_most_and_the_last_says_how_many_more(result, finding):
    many = [
        bad(result, finding, f"e/f{n:02}/ragged/d/0", Verdict.LEAK, check=f"c{n}")
        for n in range(30)
    ]
    assert len(errors(many[:MOST])) == MOST
    found = errors(many)
    assert len(found) == MOST
    assert found[-1].startswith("::error title=conformance 21 more findings::e/f09, e/f10")
    assert "and 1 more: 21 cases not as expected" in found[-1]
    with_problem = errors(many, ("novel is uncovered",))
    assert len(with_problem) == MOST
    assert with_problem[-1] == "::error title=conformance beside the cases::novel is uncovered"


def test_a_name_cannot_give_a_command_of_its_own(result, finding):
    evil = "e/a,b:c%0A\r\n::set-env name=x::y/ragged/d/0"
    (found,) = errors([bad(result, finding, evil, what="50 %\r\n::stop-commands::x")])
    assert not re.search(r"[\r\n]", found)
    title = found.removeprefix("::error title=").partition("::")[0]
    assert title == "conformance e/a%2Cb%3Ac%250A %3A%3Aset-env name=x%3A%3Ay"
    assert "50 %25 ::stop-commands::x" in found


def test_a_known_defect_has_the_command_that_explains_it(result, finding):
    case = ("a/x/ragged/d/0", Verdict.CRASH)
    known = result(*case, known="lost-state, behind", evidence=(finding(Verdict.CRASH),))
    (one,) = errors([known])
    assert "%0Aknown: conformance show defects lost-state%0Aknown: " in one
    assert one.endswith("%0Aknown: conformance show defects behind")
