"""When a fault counts as found: a check must say something that it did not say without it."""

from contextlib import nullcontext

import pytest
from results_by_hand import make_result

from conformance.core.faults import Fault
from conformance.core.verdict import MOST_FINDINGS, Finding, ScheduleResult, Verdict
from conformance.power.mutation.killing import detected, killed, overcome
from conformance.tools.explain.new_findings import new_findings


def fault(name, **more):
    return Fault(
        name, "example", "nobody", "nothing", "e", (), ("s",), lambda hits: nullcontext(), **more
    )


FAULT, CRASHING = fault("X1.example"), fault("X2.crash", crash=True)
GOOD = ScheduleResult("one", Verdict.EXACT)


def result(*findings, schedules=()):
    return make_result("e/f/s/float32/0", evidence=findings, schedules=schedules)


def found(verdict="diverged", check="free", schedule="one", request="a", **more):
    return Finding(Verdict(verdict), check, "what", schedule=schedule, request_id=request, **more)


def test_a_finding_on_a_clean_baseline_kills():
    assert killed(FAULT, result(), result(found()))


def test_findings_of_one_run_suffice_without_a_result():
    assert detected(FAULT, result(), (found(),))
    assert not detected(FAULT, result(found()), (found(),))
    assert not detected(FAULT, result(), ())


def test_nothing_found_is_no_kill():
    assert not killed(FAULT, result(), result())


@pytest.mark.parametrize("verdict", ["exact", "tie", "policy", "unsupported", "vacuous"])
def test_what_accuses_nobody_is_no_kill(verdict):
    assert not killed(FAULT, result(), result(found(verdict)))


@pytest.mark.parametrize("check", ["expectations", "witness"])
def test_what_is_not_about_the_library_is_no_kill(check):
    assert not killed(FAULT, result(), result(found("drift", check)))


@pytest.mark.parametrize("verdict", ["crash", "hang"])
def test_a_crash_kills_only_what_was_a_crash(verdict):
    mutated = result(found(verdict, "failure"))
    assert not killed(FAULT, result(), mutated)
    assert killed(CRASHING, result(), mutated)


def test_the_same_finding_with_other_numbers_is_not_new():
    before = result(found("drift", difference=0.1, step=1))
    assert not killed(FAULT, before, result(found("drift", difference=0.7, step=0)))


@pytest.mark.parametrize(
    "other",
    [
        found("nan"),
        found(check="forced"),
        found(schedule="two"),
        found(request="b"),
    ],
)
def test_another_verdict_check_schedule_or_request_is_new(other):
    before = result(found())
    assert new_findings(before, (found(), other)) == (other,)
    assert killed(FAULT, before, result(found(), other))


def test_what_the_baseline_may_have_left_out_is_not_new():
    before = result(*(found(request=f"r{i}") for i in range(40)))
    assert not killed(FAULT, before, result(found("diverged", request="late")))
    assert not killed(FAULT, before, result(found("drift", request="late")))
    assert killed(FAULT, before, result(found("nan", request="late")))


def test_the_one_finding_kept_of_a_schedule_does_not_say_what_was_left_out():
    full = [found(request=str(n)) for n in range(MOST_FINDINGS - 1)]
    baseline = result(*full, found("drift", schedule="other"))
    assert not new_findings(baseline, [found(request="left out")])
    assert new_findings(baseline, [found("nan", request="worse")])


def test_it_is_new_where_the_schedule_was_good():
    many = (found(schedule="two", request=f"r{i}") for i in range(40))
    before = result(*many, schedules=(GOOD,))
    assert killed(FAULT, before, result(found("drift")))


def test_a_schedule_that_turned_kills_though_its_evidence_is_left_out():
    turned = (ScheduleResult("one", Verdict.DRIFT),)
    assert killed(FAULT, result(schedules=(GOOD,)), result(schedules=turned))
    assert not killed(FAULT, result(schedules=turned), result(schedules=turned))


def test_a_schedule_that_turned_to_a_crash_is_no_kill():
    turned = (ScheduleResult("one", Verdict.CRASH),)
    assert not killed(FAULT, result(schedules=(GOOD,)), result(schedules=turned))
    assert killed(CRASHING, result(schedules=(GOOD,)), result(schedules=turned))


def test_a_crash_that_other_schedules_have_without_the_fault_hides_what_it_does():
    before = result(found("crash", "failure", "two", got="ValueError: (3,4) is no (2,4)"))
    known = found("crash", "failure", "one", got="ValueError: (13,4) is no (8,4)")
    new = found("crash", "failure", "three", got="ValueError: new")
    assert overcome([before], result(known, new, found(schedule="four"))) == {"one"}
    assert not overcome([result()], result(known))


def test_a_refusal_known_from_another_scenario_hides_it_too():
    words = "ValueError: no batching with history"
    refused = result(found("unsupported", "failure", "two", got=words))
    again = result(found("unsupported", "failure", "one", got=words))
    assert overcome([result(), refused], again) == {"one"}
    assert not overcome([result()], again)
