"""Schedules in step numbers."""

import msgspec

from conformance.core.schedule import Arrival, Removal, Request, Schedule, Stage, Trigger
from conformance.core.trace import Failure, Mode, Step, StepOutput, TokenEvent, Trace
from conformance.tools.repro.steps import by_steps, last_step

A, B = Request("a", (1, 2), 5), Request("b", (3,), 2)
SCHEDULE = Schedule(
    "late",
    (Arrival((A,)), Arrival((B,), Trigger("a", Stage.DECODE, 2))),
    (Removal(("a",), Trigger("b", Stage.DECODE, 1)),),
)
LATER = Arrival((Request("c", (4,), 1),), Trigger("a", Stage.REMOVED))


def step(index, *names, removed=()):
    stages = dict.fromkeys(names, Stage.DECODE)
    gone = dict.fromkeys(removed, Stage.DECODE)
    return Step(index, stages, StepOutput(), removed_from=gone)


def by_steps_of(*steps):
    return by_steps(SCHEDULE, Trace(SCHEDULE, Mode.FREE, steps))


def test_each_moment_is_the_step_before_which_it_fired():
    found = by_steps_of(step(0, "a"), step(1, "a"), step(2, "a", "b"), step(3, "b", removed=["a"]))
    assert [arrival.when for arrival in found.arrivals] == [Trigger(count=0), Trigger(count=2)]
    assert [removal.when for removal in found.removals] == [Trigger(count=3)]
    assert last_step(found) == 3


def test_what_never_fired_is_left_out():
    found = by_steps_of(step(0, "a"), step(1, "a"), step(2, "a", "b"))
    assert found.removals == ()


def failed(*outputs):
    """Of steps that gave these requests a token each, and then one that raised."""
    steps = tuple(
        Step(index, dict.fromkeys("ab", Stage.DECODE), StepOutput((TokenEvent(name, 7),)))
        for index, name in enumerate(outputs)
    )
    failure = Failure("ValueError", "no", "x.py:1", "a step")
    return by_steps(SCHEDULE, Trace(SCHEDULE, Mode.FREE, steps, failure=failure))


def test_what_was_due_in_the_step_that_failed_is_reported():
    (removal,) = failed("a", "b").removals
    assert removal.when == Trigger(count=2)
    assert failed("a", "a").removals == ()


def test_a_removal_in_prefill_is_due_when_so_much_was_processed():
    removal = Removal(("a",), Trigger("a", Stage.PREFILL, 4))
    cancelled = Schedule("cancelled", (Arrival((A,)),), (removal,))
    failure = Failure("ValueError", "no", "x.py:1", "a step")
    for done, removals in ((4, 1), (3, 0)):
        steps = (Step(0, {"a": Stage.QUEUED}, StepOutput((), {"a": done})),)
        found = by_steps(cancelled, Trace(cancelled, Mode.FREE, steps, failure=failure))
        assert len(found.removals) == removals


def test_an_arrival_that_was_not_due_when_a_step_failed_is_left_out():
    waiting = msgspec.structs.replace(SCHEDULE, arrivals=(*SCHEDULE.arrivals, LATER))
    steps = (step(0, "a", "b"),)
    failure = Failure("ValueError", "no", "x.py:1", "a step")
    found = by_steps(waiting, Trace(waiting, Mode.FREE, steps, failure=failure))
    assert [r.request_id for r in found.requests] == ["a", "b"]


def test_an_arrival_whose_call_failed_is_tried_after_the_last_step():
    steps = tuple(
        Step(index, {"a": Stage.DECODE}, StepOutput((TokenEvent("a", 7),))) for index in (0, 1)
    )
    failure = Failure("ValueError", "no", "x.py:1", "inserting")
    found = by_steps(SCHEDULE, Trace(SCHEDULE, Mode.FREE, steps, failure=failure))
    assert found.arrivals[1].when == Trigger(count=2)
