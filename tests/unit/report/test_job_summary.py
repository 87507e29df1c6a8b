"""The summary page of a job."""

import re

from conformance.core.verdict import Verdict
from conformance.report.comparison import compare
from conformance.report.job_summary import MOST_BYTES, job_summary
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


def test_what_the_step_has_left_is_kept_to(result):
    many = [result(f"e/f{n}/s/d/0", Verdict.DRIFT) for n in range(500)]
    assert len(of(*many, most_bytes=4000).encode()) <= 4000


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
