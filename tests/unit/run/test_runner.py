"""Plays schedules: when things fire, what is recorded, how a run ends."""

import threading
from typing import ClassVar

import mlx.core as mx
import pytest
from miniatures.library import ToyLibrary
from miniatures.model import ToyModel
from miniatures.right import ContinuousBatching
from miniatures.slots import FixedSlots

from conformance.core.engine import Engine
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import Unsupported
from conformance.core.schedule import (
    Arrival,
    Continuation,
    Probe,
    Removal,
    Request,
    Schedule,
    Stage,
    Trigger,
    Weigh,
)
from conformance.core.trace import Mode, ProbeResult
from conformance.run.runner import Beside, Measuring, play, step_bound

A, B = Request("a", (1, 2, 3), 4), Request("b", (4, 5), 2)
SMALL = EngineOptions(prefill_step_size=2)


def schedule(*arrivals, removals=(), probes=(), **more):
    return Schedule("s", arrivals, tuple(removals), tuple(probes), **more)


def run(schedule, engine=ContinuousBatching, **more):
    model = ToyModel()
    return play(engine, model, schedule, meter=model.calls, **more)


def first_step_of(trace, name):
    """The first step at whose start the request was known."""
    return next(step.index for step in trace.steps if name in step.stages)


def test_a_free_run_gives_what_the_single_stream_gives():
    trace = run(schedule(Arrival((A, B))))
    library = ToyLibrary()
    for request in (A, B):
        want = library.single_stream(
            ToyModel(), request, options=EngineOptions(), steps=request.max_tokens
        ).stream
        assert trace.stream(request.request_id).tokens == want.tokens
    assert trace.mode is Mode.FREE
    assert (trace.failure, trace.out_of_steps, trace.missed) == (None, False, ())
    assert trace.cache_bytes_at_end == 0


# ---------------------------------------------------------------------------- what is recorded


def test_a_step_records_stages_rows_calls_and_bytes():
    trace = run(schedule(Arrival((A, B))))
    first, second = trace.steps[:2]
    assert first.stages == {"a": Stage.QUEUED, "b": Stage.QUEUED}
    assert [(c.batch, c.length) for c in first.forwards] == [(2, 2)]
    assert first.output.processed == {"a": 2, "b": 1}
    assert (first.rows, first.cache_bytes) == ({}, 4 * 3)
    assert second.stages == {"a": Stage.PREFILL, "b": Stage.PREFILL}
    assert trace.steps[2].stages == {"a": Stage.DECODE, "b": Stage.DECODE}
    assert trace.steps[2].rows == {"a": 0, "b": 1}


# ---------------------------------------------------------------------------- triggers


@pytest.mark.parametrize(
    ("when", "step"),
    [
        (Trigger(), 0),
        (Trigger(None, count=3), 3),
        (Trigger("a", Stage.QUEUED), 0),
        (Trigger("a", Stage.PREFILL), 1),
        (Trigger("a", Stage.PREFILL, 4), 2),
        (Trigger("a", Stage.DECODE), 3),
        (Trigger("a", Stage.DECODE, 1), 4),
        (Trigger("a", Stage.DECODE, 2), 5),
        (Trigger("a", Stage.FINISHED), 6),
    ],
)
def test_an_arrival_fires_before_the_step_that_its_trigger_names(when, step):
    """Request ``a``: 5 tokens in pieces of 2, then 3 tokens out."""
    long = Request("a", (1, 2, 3, 4, 5), 3)
    trace = run(schedule(Arrival((long,)), Arrival((B,), when), options=SMALL))
    assert first_step_of(trace, "b") == step
    assert trace.missed == ()
    assert trace.stream("b").finish_reason is not None


def test_an_arrival_may_wait_for_a_removal():
    trace = run(
        schedule(
            Arrival((A,)),
            Arrival((B,), Trigger("a", Stage.REMOVED)),
            removals=[Removal(("a",), Trigger("a", Stage.DECODE, 1))],
        )
    )
    removal = next(step.index for step in trace.steps if step.removed_from)
    assert first_step_of(trace, "b") == removal  # one firing makes another due, in the same step
    assert len(trace.stream("a").tokens) == 1
    assert trace.stream("a").finish_reason is None


@pytest.mark.parametrize(
    ("when", "stage"),
    [
        (Trigger("a", Stage.QUEUED), Stage.QUEUED),
        (Trigger("a", Stage.PREFILL, 2), Stage.PREFILL),
        (Trigger("a", Stage.DECODE, 2), Stage.DECODE),
        (Trigger("a", Stage.FINISHED), Stage.FINISHED),
    ],
)
def test_a_removal_is_recorded_with_the_stage_it_was_in(when, stage):
    long = Request("a", (1, 2, 3, 4, 5), 3)
    trace = run(
        schedule(Arrival((long, B)), removals=[Removal(("a",), when)], options=SMALL),
    )
    (step,) = [step for step in trace.steps if step.removed_from]
    assert step.removed_from == {"a": stage}
    assert step.stages["a"] is Stage.REMOVED
    assert trace.stream("b").finish_reason is not None


def test_probes_are_made_before_the_step_and_recorded_with_it():
    probes = [
        Probe(kind, Trigger("a", Stage.DECODE, 1)) for kind in ("empty_prompt", "unknown_uid")
    ]
    trace = run(schedule(Arrival((A, B)), probes=probes))
    (step,) = [step for step in trace.steps if step.probes]
    assert step.probes[0] == ProbeResult(
        "empty_prompt", "ValueError: empty_prompt: the argument is not valid"
    )
    assert [probe.kind for probe in step.probes] == ["empty_prompt", "unknown_uid"]


def test_what_never_fires_is_described_and_ends_the_run():
    trace = run(
        schedule(
            Arrival((A,)),
            Arrival((B,), Trigger("a", Stage.DECODE, 9)),
            removals=[Removal(("b",), Trigger("b", Stage.DECODE, 1))],
            probes=[Probe("empty_prompt", Trigger("a", Stage.PREFILL, 99))],
        )
    )
    assert trace.missed == (
        "arrival of b (when a is in decode with 9 done)",
        "removal of b (when b is in decode with 1 done)",
        "probe empty_prompt (when a is in prefill with 99 done)",
    )
    assert not trace.out_of_steps
    assert trace.stream("a").finish_reason is not None
    assert "b" not in trace.steps[-1].stages


def test_a_request_goes_on_from_an_extracted_cache():
    more = Request("more", (9, 8), 2, continues=Continuation("a"))
    trace = run(schedule(Arrival((A,)), Arrival((more,), Trigger("a", Stage.FINISHED))))
    whole = Request("x", (*A.prompt, *trace.stream("a").tokens, 9, 8), 2)
    assert trace.stream("more").tokens == run(schedule(Arrival((whole,)))).stream("x").tokens


def test_a_saved_cache_goes_by_way_of_a_file():
    class Saves(ContinuousBatching):
        def reloaded(self, prefix):
            return [*prefix[:-1], 11]

    more = Request("more", (9, 8), 2, continues=Continuation("a", saved=True))
    played = schedule(Arrival((A,)), Arrival((more,), Trigger("a", Stage.FINISHED)))
    trace = run(played, Saves)
    kept = (*A.prompt, *trace.stream("a").tokens)[:-1]
    whole = Request("x", (*kept, 11, 9, 8), 2)
    assert trace.stream("more").tokens == run(schedule(Arrival((whole,)))).stream("x").tokens


def test_an_engine_that_cannot_save_caches_says_so():
    class NeverSaves(ContinuousBatching):
        reloaded = Engine.reloaded

    more = Request("more", (9, 8), 2, continues=Continuation("a", saved=True))
    played = schedule(Arrival((A,)), Arrival((more,), Trigger("a", Stage.FINISHED)))
    assert run(played, NeverSaves).failure.message == "engine right cannot save caches"


# ---------------------------------------------------------------------------- how a run ends


class Watched(ContinuousBatching):
    """Remembers what became of it."""

    last = None

    def __init__(self, model, options):
        super().__init__(model, options)
        self.thread = threading.current_thread()
        type(self).last = self


class FailsInStep(Watched):
    """Raises in its third step."""

    count = 0

    def step(self):
        self.count += 1
        if self.count == 3:
            raise RuntimeError("shapes do not match")
        return super().step()


class FailsInInit(ContinuousBatching):
    """Cannot be made."""

    def __init__(self, model, options):
        raise Unsupported("sliding windows are beyond this engine")


class LacksALibrary(ContinuousBatching):
    """Imports what this machine cannot load."""

    def __init__(self, model, options):
        raise ImportError("libGL.so.1: cannot open shared object file: No such file or directory")


class FailsInInsert(Watched):
    """Takes nothing."""

    def insert(self, submissions):
        raise ValueError("no room")


class FailsInRemove(Watched):
    """Gives nothing back."""

    def remove(self, request_ids):
        raise KeyError("a")


class Stuck(Watched):
    """Takes requests and does nothing."""

    def step(self):
        return type(super().step())()


def test_an_exception_ends_the_run_and_is_part_of_the_record():
    trace = run(schedule(Arrival((A, B))), FailsInStep)
    assert str(trace.failure).startswith("RuntimeError: shapes do not match [unit/run/")
    assert trace.failure.frame.startswith("unit/run/test_runner.py:")
    assert trace.failure.doing == "step 2"
    assert not trace.failure.unsupported
    assert len(trace.steps) == 2
    assert (trace.out_of_steps, trace.cache_bytes_at_end, trace.missed) == (False, None, ())
    assert FailsInStep.last.closed


@pytest.mark.parametrize(
    ("engine", "doing", "unsupported"),
    [
        (FailsInInit, "making the engine", True),
        (LacksALibrary, "making the engine", False),
        (FailsInInsert, "inserting a, b", False),
        (FailsInRemove, "removing a before step 3", False),
    ],
)
def test_a_failure_says_what_was_being_done(engine, doing, unsupported):
    removal = Removal(("a",), Trigger("a", Stage.DECODE, 1))
    trace = run(schedule(Arrival((A, B)), removals=[removal]), engine)
    assert (trace.failure.doing, trace.failure.unsupported) == (doing, unsupported)


def test_a_run_that_does_not_end_is_stopped_at_its_bound():
    trace = run(schedule(Arrival((A, B))), Stuck)
    assert trace.out_of_steps
    assert len(trace.steps) == step_bound(trace.schedule) == (3 + 4 + 4) + (2 + 2 + 4) + 8
    assert Stuck.last.closed


@pytest.mark.parametrize("other", [True, False])
def test_an_engine_is_driven_on_another_thread_if_asked(other):
    trace = run(schedule(Arrival((B,)), decode_on_other_thread=other), Watched)
    assert trace.stream("b").finish_reason is not None
    assert (Watched.last.thread is not threading.current_thread()) is other


class Counted(ContinuousBatching):
    """Keeps all engines, in the order in which they were made, and how often each was stepped."""

    made: ClassVar[list] = []
    turns: ClassVar[list] = []

    def __init__(self, model, options):
        super().__init__(model, options)
        self.model, self.steps, self.closed = model, 0, False
        self.made.append(self)

    def step(self):
        self.steps += 1
        self.turns.append(self.model)
        if self.model.broken:
            raise ValueError("other")
        return super().step()

    def close(self):
        self.closed = True
        super().close()


def beside(*broken):
    """A run with two other models, and the engines in the order in which they were made."""
    others = [ToyModel(), ToyModel()]
    model = ToyModel()
    for one in (model, *others):
        one.broken = False
    for at in broken:
        others[at].broken = True
    Counted.made.clear()
    Counted.turns.clear()
    given = [Beside(other, (B,)) for other in others]
    trace = play(Counted, model, schedule(Arrival((A,))), meter=model.calls, beside=given)
    return trace, [engine.model for engine in Counted.made], [others[0], model, others[1]]


def test_engines_of_other_models_take_turns_and_are_closed():
    trace, made, order = beside()
    assert made == order
    assert Counted.turns == order * len(trace.steps)
    assert {engine.steps for engine in Counted.made} == {len(trace.steps)}
    assert all(engine.closed for engine in Counted.made)
    assert trace.stream("a").tokens == run(schedule(Arrival((A,)))).stream("a").tokens
    assert trace.failure is None


def test_another_model_that_fails_ends_the_run_when_it_is_complete():
    trace, *_ = beside(0)
    assert trace.stream("a").finish_reason is not None
    assert trace.failure.doing == "decoding other models by turns"
    assert all(engine.closed for engine in Counted.made)


# An engine with a fixed number of slots -----------------------------------------------------------


class Recorded(FixedSlots):
    """Keeps the calls that it gets."""

    calls: ClassVar[list] = []

    def insert(self, submissions):
        self.calls.append(("insert", *(s.request.request_id for s in submissions)))
        super().insert(submissions)

    def remove(self, request_ids):
        self.calls.append(("remove", *request_ids))
        super().remove(request_ids)


def slotted(schedule):
    Recorded.calls.clear()
    return run(schedule, Recorded), list(Recorded.calls)


def names(*numbers):
    return [f"r{number}" for number in numbers]


def test_requests_without_a_slot_wait_in_the_runner_and_are_inserted_in_their_order():
    rows = [Request(f"r{i}", (1 + i, 2), 1 + i % 4) for i in range(7)]
    trace, calls = slotted(schedule(Arrival(tuple(rows))))
    assert calls[0] == ("insert", *names(0, 1, 2, 3))
    later = [name for _, *given in calls[1:] for name in given]
    assert later == names(4, 5, 6)
    assert trace.failure is None
    assert all(trace.stream(row.request_id).finish_reason for row in rows)
    assert trace.steps[0].stages["r6"] is Stage.QUEUED
    assert max(len(step.rows) for step in trace.steps) == FixedSlots.slots


def test_a_schedule_with_fewer_slots_has_those():
    rows = tuple(Request(f"r{i}", (1 + i, 2), 3) for i in range(4))
    options = EngineOptions(completion_batch_size=2)
    trace, calls = slotted(schedule(Arrival(rows), options=options))
    assert calls == [("insert", *names(0, 1)), ("insert", *names(2, 3))]
    assert trace.failure is None


def test_a_request_that_is_removed_while_it_waits_never_reaches_the_engine():
    rows = tuple(Request(f"r{i}", (1 + i, 2), 3) for i in range(7))
    removals = (
        Removal(("r5",), Trigger(count=1)),
        Removal(("r4", "r0"), Trigger("r0", Stage.DECODE, 1)),
    )
    trace, calls = slotted(schedule(Arrival(rows), removals=removals))
    assert trace.failure is None
    assert ("remove", "r0") in calls
    inserted = [name for what, *given in calls if what == "insert" for name in given]
    assert inserted == names(0, 1, 2, 3, 6)
    gone = {n: at for step in trace.steps for n, at in step.removed_from.items()}
    assert gone == {"r5": Stage.QUEUED, "r4": Stage.QUEUED, "r0": Stage.DECODE}


# What is measured beside the calls of a run, and after which steps --------------------------------

STEPS = range(21)


@pytest.mark.parametrize(
    ("weigh", "steps"),
    [
        (None, []),
        (Weigh.KEPT, []),
        (Weigh.STORED, []),
        (Weigh.READS, []),
        (Weigh.GRAPH, list(STEPS)),
        (Weigh.ALIVE, list(STEPS)),
        (Weigh.SAMPLED, [0, 10, 20]),
    ],
)
def test_memory_is_measured_after_the_steps_that_the_schedule_asks_for(weigh, steps):
    measuring = Measuring(weigh)
    assert [index for index in STEPS if measuring.after(index)] == steps


def test_arrays_of_a_run_are_counted_and_none_of_before():
    before = mx.zeros(1000)
    measuring = Measuring(Weigh.SAMPLED)
    with measuring.on():
        first = measuring.alive(0, 0)
        held = [mx.zeros(5) for _ in range(3)]
        assert measuring.alive(5, 0) is None
        assert measuring.alive(10, 0).arrays == first.arrays + len(held)
    assert before.size == 1000


def read(array):
    return array.tolist()


def test_reads_are_given_once_with_their_place():
    measuring = Measuring(Weigh.READS)
    with measuring.on():
        assert measuring.reads() == ()
        read(mx.arange(2) + 1)
        read(mx.arange(3) + 1)
        first, second = measuring.reads()
        assert first == second
        assert "run/test_runner.py:" in first
        assert first.endswith(" tolist")
        assert measuring.reads() == ()
        read(mx.arange(4) + 1)
        assert len(measuring.reads()) == 1
