"""Each finding of a case is known or new, as the entries allow it."""

import pytest
from results_by_hand import make_finding, make_result

from conformance.checks.expectations import Defect, Expectations, Refusal
from conformance.core.verdict import ScheduleResult, Verdict

CASE = "mlx_lm/plamo2/ragged/float32/0"


def defect(**changes):
    fields = {
        **{"id": "lost-state", "engines": ("mlx_lm",), "families": ("plamo*",), "why": "it is"},
        **{"package": "mlx-lm", "versions": ">=0.32.0", "where": "plamo2.py:1"},
        **{"verdicts": {"ragged": Verdict.DIVERGED}, "schedules": {"ragged": ("late",)}},
    }
    return Defect(**(fields | changes))


REFUSAL = Refusal(
    **{"id": "metal-only", "engines": ("mlx_lm",), "families": ("plamo2",), "dtypes": ("*",)},
    **{"text": "metal_kernel", "why": "no CPU path", "package": "mlx-lm"},
)


def known(*findings, entries=(), refusals=()):
    """What of it the entries allow: the ids, in the order of the findings."""
    order = sorted(findings, key=lambda f: -f.verdict.severity)
    names = dict.fromkeys(f.schedule for f in findings if f.schedule)
    worst = {n: next(f.verdict for f in order if f.schedule == n) for n in names}
    schedules = tuple(ScheduleResult(name, verdict) for name, verdict in worst.items())
    verdict = order[0].verdict
    result = make_result(CASE, verdict, evidence=findings, schedules=schedules)
    judged = Expectations(tuple(entries), tuple(refusals)).apply(result)
    return [finding.known for finding in judged.evidence if finding.check != "expectations"]


def at(schedule, verdict=Verdict.DIVERGED, **changes):
    return make_finding(verdict, schedule=schedule, **changes)


def test_what_the_entry_claims_is_known_and_another_schedule_is_new():
    assert known(at("late"), at("early"), entries=[defect()]) == ["lost-state", ""]


@pytest.mark.parametrize(
    ("verdict", "allowed"),
    [(Verdict.DRIFT, True), (Verdict.DIVERGED, True), (Verdict.NAN, False), (Verdict.CRASH, False)],
)
def test_what_is_worse_than_the_entry_wants_is_new(verdict, allowed):
    found = known(at("late"), at("late", verdict), entries=[defect()])
    assert found == ["lost-state", "lost-state" if allowed else ""]


def test_without_an_entry_for_the_case_all_is_new():
    assert known(at("late"), entries=[defect(families=("llama",))]) == [""]


def test_each_entry_that_allows_it_is_named():
    entries = [defect(), defect(id="other", schedules={})]
    assert known(at("late"), at("early"), entries=entries) == ["lost-state, other", "other"]


def test_what_is_in_no_schedule_is_judged_by_its_verdict():
    found = known(at("", Verdict.VACUOUS), at("late"), at("", Verdict.CRASH), entries=[defect()])
    assert found == ["lost-state", "lost-state", ""]


def test_a_declared_refusal_is_known_also_beside_something_new():
    refused = at("late", Verdict.UNSUPPORTED, got="no metal_kernel here")
    assert known(refused, refusals=[REFUSAL]) == ["metal-only"]
    assert known(refused, at("early"), refusals=[REFUSAL]) == ["metal-only", ""]
    other = at("late", Verdict.UNSUPPORTED, got="no sinks")
    assert known(refused, other, refusals=[REFUSAL]) == ["metal-only", ""]


def test_a_tie_is_never_a_defect():
    assert known(at("late"), at("late", Verdict.TIE), entries=[defect()]) == ["lost-state", ""]


def test_what_is_found_with_the_defects_mended_is_new():
    assert known(at("late"), at("late", mended="lost-state"), entries=[defect()]) == [
        "lost-state",
        "",
    ]
