"""What is worse than in an earlier run, and what only failed there too."""

import pytest
from results_by_hand import make_result

from conformance.core.errors import ResultError
from conformance.core.verdict import ScheduleResult, Verdict, encode
from conformance.report.outcome import Outcome
from conformance.report.worsening import Base

CASE = "mlx_lm/llama/ragged/float32/0"


def base(*results):
    return Base("base.jsonl", {result.case: result for result in results})


def case(verdict, *, expected=None, known=None, schedules=()):
    expected = verdict.good if expected is None else expected
    played = tuple(ScheduleResult(name, how) for name, how in schedules)
    return make_result(CASE, verdict, expected=expected, known=known, schedules=played)


@pytest.mark.parametrize(
    ("before", "after", "worse"),
    [
        (case(Verdict.EXACT), case(Verdict.TIE), False),
        (case(Verdict.EXACT), case(Verdict.DIVERGED), True),
        (case(Verdict.TIE), case(Verdict.CRASH), True),
        (case(Verdict.DIVERGED), case(Verdict.DIVERGED), False),
        (case(Verdict.DRIFT), case(Verdict.DIVERGED), True),
        (case(Verdict.CRASH), case(Verdict.DIVERGED), False),
        # Fixed, where an entry still wants the defect.
        (case(Verdict.DIVERGED, expected=True, known="a"), case(Verdict.EXACT, expected=False), 0),
        # A known defect that shows as its entry allows.
        (
            case(Verdict.DRIFT, expected=True, known="a"),
            case(Verdict.DIVERGED, expected=True, known="a"),
            False,
        ),
        # Right before, and an entry would hide it.
        (case(Verdict.EXACT), case(Verdict.DIVERGED, expected=True, known="a"), True),
        (case(Verdict.EXACT), case(Verdict.UNSUPPORTED, expected=True, known="a"), False),
        (case(Verdict.EXACT), case(Verdict.UNSUPPORTED), True),
    ],
)
def test_a_case_is_worse_by_its_verdict_not_by_what_is_expected(before, after, worse):
    assert base(before).worse(after) == worse


def test_one_more_schedule_that_fails_is_worse_with_the_same_verdict():
    before = case(Verdict.DIVERGED, schedules=[("a", Verdict.DIVERGED), ("b", Verdict.EXACT)])
    after = case(Verdict.DIVERGED, schedules=[("a", Verdict.DIVERGED), ("b", Verdict.DRIFT)])
    assert not base(before).worse(before)
    assert base(before).worse(after)
    assert not base(after).worse(before)


def test_a_schedule_that_an_entry_lets_a_library_refuse_is_not_worse():
    before = case(Verdict.CRASH, schedules=[("a", Verdict.CRASH), ("b", Verdict.EXACT)])
    played = [("a", Verdict.CRASH), ("b", Verdict.UNSUPPORTED)]
    assert not base(before).worse(case(Verdict.CRASH, expected=True, schedules=played))
    assert base(before).worse(case(Verdict.CRASH, schedules=played))


def test_a_case_that_was_not_run_is_worse_if_it_is_not_expected():
    assert base().worse(case(Verdict.DIVERGED))
    assert not base().worse(case(Verdict.DIVERGED, expected=True, known="a"))


def test_an_outcome_shows_only_what_is_worse_and_notes_the_rest():
    old = make_result("mlx_lm/a/ragged/float32/0", Verdict.CRASH)
    broken = make_result("mlx_lm/b/ragged/float32/0", Verdict.DIVERGED)
    gone = make_result("mlx_lm/c/ragged/float32/0")
    earlier = base(old, make_result(broken.case), gone)
    outcome = Outcome((old, broken), problems=("expectations: stale",))
    seen = earlier.seen(outcome, lambda case: True)
    assert [result.case for result in seen.unexpected] == [broken.case]
    assert not seen.ok
    assert seen.notes == ("expectations: stale",)
    assert seen.problems == (
        f"lost coverage: 1 case right in base.jsonl and not played now: {gone.case}",
    )
    fixed = earlier.seen(Outcome((old, gone)), lambda case: case.family != "b")
    assert fixed.ok
    assert fixed.notes == ()


def test_a_schedule_that_is_not_played_any_more_is_lost_coverage():
    both = case(Verdict.EXACT, schedules=[("a", Verdict.EXACT), ("b", Verdict.EXACT)])
    one = case(Verdict.EXACT, schedules=[("a", Verdict.EXACT)])
    seen = base(both).seen(Outcome((one,)), lambda case: True)
    assert not seen.ok
    assert seen.problems == (
        f"lost coverage: 1 case proving less than in base.jsonl: {CASE} (1 schedule not played: b)",
    )
    assert base(one).seen(Outcome((both,)), lambda case: True).ok


def test_what_failed_before_is_no_coverage_to_lose():
    failed = case(Verdict.DIVERGED)
    assert base(failed).lost(Outcome(()), lambda case: True) == ()


def test_a_file_without_results_is_refused(tmp_path):
    file = tmp_path / "base.jsonl"
    file.write_text("")
    with pytest.raises(ResultError, match="--against file has no results"):
        Base.read(file)
    file.write_text(encode(case(Verdict.EXACT)) + "\n")
    assert list(Base.read(file).results) == [CASE]


def test_a_known_defect_that_shows_otherwise_is_noted():
    def known(difference):
        changes = {"expected": True, "known": "a", "max_abs_diff": difference}
        return make_result(CASE, Verdict.DIVERGED, **changes)

    seen = base(known(0.1)).seen(Outcome((known(0.5),)), lambda _: True)
    assert seen.ok
    assert seen.notes == (
        f"a known defect shows otherwise than in base.jsonl in 1 case: {CASE} "
        "(0.1 -> 0.5 nats off)",
    )
