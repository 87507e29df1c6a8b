"""Known defects that show otherwise than before."""

import msgspec
import pytest
from results_by_hand import make_finding, make_result

from conformance.core.verdict import MOST_FINDINGS, MendedResult, ScheduleResult, Verdict
from conformance.report.moved import moved


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
