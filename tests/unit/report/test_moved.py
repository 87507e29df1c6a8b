"""Known defects that show otherwise than before."""

import msgspec
import pytest
from results_by_hand import make_finding, make_result

from conformance.core.contracts import Cost
from conformance.core.verdict import (
    MOST_FINDINGS,
    MendedResult,
    ScheduleResult,
    Verdict,
    WitnessResult,
)
from conformance.report.moved import less_covered, moved, moved_streams


def schedules(**verdicts):
    return tuple(ScheduleResult(name, Verdict(verdict)) for name, verdict in verdicts.items())


def known(verdict=Verdict.DIVERGED, **changes):
    fields = {
        "expected": True,
        "known": "a",
        "schedules": schedules(long_and_short="diverged", one="exact"),
    }
    return make_result(verdict=verdict, **{**fields, **changes})


def test_the_same_is_not_moved():
    assert moved(known(), known()) == ""
    assert moved(known(), known(max_abs_diff=0.01234561)) == "", "rounding"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"schedules": schedules(long_and_short="diverged", one="drift")},
            "schedule one: exact -> drift",
        ),
        (
            {"evidence": (make_finding(), make_finding(request_id="c"))},
            "also wrong: request c of long_and_short",
        ),
        ({"evidence": ()}, "no longer wrong: request b of long_and_short"),
        ({"first_bad_step": 1}, "first bad step 3 -> 1"),
        ({"max_abs_diff": 0.5}, "0.0123 -> 0.5 nats off"),
    ],
)
def test_schedules_requests_and_numbers_are_named(changes, said):
    assert moved(known(), known(**changes)) == said


def test_what_is_worse_once_mended_is_moved():
    before = known(mended=MendedResult(Verdict.EXACT, ("a",)))
    after = known(mended=MendedResult(Verdict.DRIFT, ("a",)))
    assert moved(before, after) == "mended: exact -> drift"


def test_only_what_was_played_in_both_is_compared():
    fewer = known(schedules=schedules(long_and_short="diverged"))
    assert moved(known(), fewer) == ""
    assert moved(known(), msgspec.structs.replace(fewer, max_abs_diff=0.5)) == ""


def test_stray_memory_moves_nothing():
    for verdict in (Verdict.UNSTABLE, Verdict.NAN):
        assert moved(known(verdict), known(verdict, max_abs_diff=0.5, evidence=())) == ""
    unstable = schedules(long_and_short="unstable", one="exact")
    assert moved(known(), known(schedules=unstable, max_abs_diff=0.5)) == ""


def test_where_findings_were_left_out_requests_are_not_compared():
    many = tuple(make_finding(request_id=str(n)) for n in range(MOST_FINDINGS))
    assert moved(known(), known(evidence=many)) == ""


def test_what_is_not_known_in_both_is_a_matter_of_verdicts():
    assert moved(known(expected=False), known(max_abs_diff=0.5)) == ""
    assert moved(known(), known(Verdict.DRIFT, max_abs_diff=0.5)) == ""


# What a case proved before and does not now ------------------------------------------------------

COST = Cost("rows", 1.0, 2.0)
WHOLE = make_result(
    schedules=(ScheduleResult("a", Verdict.EXACT, costs=(COST,)), ScheduleResult("b", "exact")),
    witnesses=(WitnessResult("padding", ("a",)), WitnessResult("turn", excused="no window")),
)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"schedules": WHOLE.schedules[:1]}, "1 schedule not played: b"),
        (
            {"schedules": WHOLE.schedules[:1], "left_out": ("b",)},
            "1 schedule not played (left out by the tier): b",
        ),
        ({"witnesses": ()}, "not shown: padding"),
        ({"witnesses": (WitnessResult("padding", excused="x"),)}, "not shown: padding"),
        (
            {"schedules": (ScheduleResult("a", "exact"), WHOLE.schedules[1])},
            "not counted: rows of a",
        ),
        ({"verdict": Verdict.CRASH, "schedules": (), "witnesses": ()}, ""),
        ({"schedules": ()}, "2 schedules not played: a, b"),
    ],
)
def test_each_kind_of_it_is_named(changes, words):
    after = msgspec.structs.replace(WHOLE, **changes)
    assert less_covered(WHOLE, after) == words
    if changes.get("verdict") is None:
        assert less_covered(after, WHOLE) == "", "more is no loss"


def test_a_known_defect_that_is_not_mended_any_more_is_named():
    known = {"expected": True, "known": "x"}
    mended = make_result(
        verdict=Verdict.DIVERGED, **known, mended=MendedResult(Verdict.EXACT, ("x",))
    )
    bare = msgspec.structs.replace(mended, mended=None)
    assert less_covered(mended, bare) == "not played with its known defects mended"
    hidden = msgspec.structs.replace(mended, unmended=("y",))
    assert less_covered(mended, hidden) == "hidden behind what has no mend: y"
    assert less_covered(bare, mended) == ""


# Single streams of two releases are compared where both have them, beyond rounding ---------------


def result(noise=None, **nats):
    made = make_result("mlx_lm/llama/ragged/float32/0", Verdict.EXACT)
    schedules = tuple(
        ScheduleResult(name, Verdict.EXACT, single_logprob=value) for name, value in nats.items()
    )
    return msgspec.structs.replace(made, schedules=schedules, noise=noise)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (result(a=-3.0), result(a=-3.0009)),
        (result(a=-3.0, noise=1e-4), result(a=-3.009, noise=1e-5)),
        (result(a=-3.0), result(b=-4.0)),
        (result(a=None), result(a=-4.0)),
        (result(a=-4.0), result(a=None)),
    ],
)
def test_rounding_and_what_only_one_has_are_not_named(before, after):
    assert moved_streams(before, after) == ""


def test_what_moved_is_named_by_schedule_with_the_largest_difference():
    before, after = result(a=-3.0, b=-3.0, c=1.0), result(a=-3.25, b=-3.5, c=1.0)
    assert moved_streams(before, after) == "(a, b): single streams moved, by 0.5 nats in all"
