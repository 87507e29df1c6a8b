"""Two runs compared."""

import pytest

from conformance.core.errors import ResultError
from conformance.core.verdict import MendedResult, ScheduleResult, Verdict
from conformance.report.comparison import MOST_BYTES, Kind, compare, markdown

CASE = "mlx_lm/llama/ragged/float32/0"


def kinds(before, after, **options):
    return [change.kind for change in compare(before, after, **options).changes]


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ((Verdict.EXACT, True), (Verdict.DIVERGED, False), Kind.FAILING),
        ((Verdict.DIVERGED, True), (Verdict.EXACT, False), Kind.FAILING),
        ((Verdict.DIVERGED, True), (Verdict.DIVERGED, False), Kind.FAILING),
        ((Verdict.EXACT, True), (Verdict.DIVERGED, True), Kind.WORSE),
        ((Verdict.DRIFT, False), (Verdict.CRASH, False), Kind.WORSE),
        ((Verdict.UNSUPPORTED, True), (Verdict.CRASH, True), Kind.WORSE),
        ((Verdict.EXACT, True), (Verdict.UNSUPPORTED, True), Kind.LOST),
        ((Verdict.CRASH, True), (Verdict.UNSUPPORTED, True), Kind.CHANGED),
        ((Verdict.CRASH, False), (Verdict.EXACT, True), Kind.FIXED),
        ((Verdict.CRASH, True), (Verdict.EXACT, True), Kind.FIXED),
        ((Verdict.CRASH, False), (Verdict.CRASH, True), Kind.EXPLAINED),
        ((Verdict.CRASH, False), (Verdict.DRIFT, False), Kind.CHANGED),
        ((Verdict.EXACT, True), (Verdict.TIE, True), Kind.CHANGED),
    ],
)
def test_a_change_of_verdict_has_its_kind(result, before, after, kind):
    (old, old_expected), (new, new_expected) = before, after
    assert kinds(
        [result(verdict=old, expected=old_expected)], [result(verdict=new, expected=new_expected)]
    ) == [kind]


@pytest.mark.parametrize("factor", [5.0, 0.2])
def test_noise_that_changed_much_is_reported_and_is_no_regression(result, factor):
    found = compare([result(noise=1e-5)], [result(noise=1e-5 * factor)])
    (change,) = found.changes
    assert change.kind is Kind.NOISE
    assert change.factor == pytest.approx(factor)
    assert not found.regressed


def test_a_new_case_that_fails_is_a_regression(result):
    bad = result(case="mlx_lm/llama/wide/float32/0", verdict=Verdict.CRASH)
    assert kinds([result()], [result(), bad]) == [Kind.FAILING]


def test_a_case_that_proves_less_is_lost_coverage_with_the_same_verdict(result):
    def of(*names):
        return result(schedules=tuple(ScheduleResult(n, Verdict.EXACT) for n in names))

    found = compare([of("a", "b")], [of("a")], common=True)
    (change,) = found.changes
    assert (change.kind, found.same, found.regressed) == (Kind.LOST, 0, True)
    assert change.text == "exact: 1 schedule not played: b"
    assert kinds([of("a")], [of("a", "b")]) == []


def test_releases_that_differ_are_reported(result):
    found = compare([result(versions={"mlx": "1"})], [result(versions={"mlx": "2", "numpy": "3"})])
    assert found.versions == {"mlx": ("1", "2"), "numpy": ("none", "3")}


@pytest.mark.parametrize(("many", "words"), [(0, "has no results"), (2, f"{CASE} twice")])
def test_a_run_that_cannot_be_compared(result, many, words):
    with pytest.raises(ResultError, match=words):
        compare([result()], [result()] * many)


def test_a_known_defect_that_shows_otherwise_is_reported_and_is_no_regression(result):
    known = {"verdict": Verdict.DIVERGED, "expected": True, "known": "a"}
    found = compare([result(**known, max_abs_diff=0.1)], [result(**known, max_abs_diff=0.5)])
    (change,) = found.changes
    assert (change.kind, found.same, found.regressed) == (Kind.MOVED, 0, False)
    assert change.text == "diverged (known: a): 0.1 -> 0.5 nats off"


def test_a_case_run_only_mended_is_not_compared_with_one_as_released(result):
    alone = MendedResult(Verdict.EXACT, ("a",), alone=True)
    both = MendedResult(Verdict.EXACT, ("a",))
    released = result(verdict=Verdict.DIVERGED, expected=True, known="a", mended=both)
    mended = result(verdict=Verdict.EXACT, expected=True, known="a", mended=alone)
    assert kinds([released], [mended]) == kinds([mended], [released]) == []
    new = result(verdict=Verdict.DIVERGED, expected=False)
    assert kinds([mended], [new]) == [Kind.FAILING]


# A comparison as Markdown -------------------------------------------------------------------------


def test_changed_cells_come_before_anything_else(result):
    text = markdown(compare([result()], [result(verdict=Verdict.DIVERGED)]))
    cell, row = text.index("| `llama` | **`. > X!`** |"), text.index(f"| `{CASE}` |")
    assert cell < row
    assert text.startswith("### Conformance: regressed\n\n1 newly failing, 0 as before\n")


def test_many_changes_fit_into_a_comment_and_what_is_left_out_is_reported(result):
    def run(verdict):
        return [result(case=f"e/f{n}/s{n}/float32/0", verdict=verdict) for n in range(900)]

    text = markdown(compare(run(Verdict.EXACT), run(Verdict.CRASH)))
    assert len(text.encode()) < MOST_BYTES
    assert "more lines are left out" in text


def test_nothing_can_break_the_table(result, finding):
    name = "mlx_lm/@me|<b>`/ragged/float32/0"
    bad = result(name, Verdict.CRASH, evidence=(finding(what="a | b\n`c`"),))
    text = markdown(compare([result(name)], [bad]))
    assert "<br>`` a \\| b `c` `` |" in text
    assert "| `` @me\\|<b>` `` |" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert [row.replace("\\|", "").count("|") for row in rows] == [3] * len(rows)


def test_versions_are_code(result):
    text = markdown(compare([result(versions={"mlx": "1"})], [result(versions={"mlx": "<2>"})]))
    assert "- `mlx`: `1` -> `<2>`" in text


def test_a_failure_that_is_known_now_is_no_changed_cell(result):
    old, new = (result(verdict=Verdict.DRIFT, expected=known) for known in (False, True))
    text = markdown(compare([old], [new]))
    assert "changed cells" not in text
    assert f"| `{CASE}` | `drift! -> drift` |" in text
    assert "| `llama` | **`~ > ~!`** |" in markdown(compare([new], [old]))
