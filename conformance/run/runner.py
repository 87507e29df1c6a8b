"""Runs a schedule on an engine and records what happens, without a verdict.

One step of a run: perform what is due (arrivals, removals, probes), record each request's stage,
call ``engine.step()``, record its output and its model calls. Requests that an engine with a fixed
number of slots has no slot for wait here, and are queued.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from conformance.core.engine import Capability, Engine, Submission
from conformance.core.errors import MachineError
from conformance.core.failures import failure_of, machine_problem
from conformance.core.phases import ForwardCall
from conformance.core.rounds import Hints
from conformance.core.schedule import (
    CYCLES,
    Arrival,
    Probe,
    Removal,
    Request,
    Schedule,
    Stage,
    Trigger,
    Weigh,
)
from conformance.core.trace import Alive, KeptCache, Mode, ProbeResult, Step, StepOutput, Trace

# Steps after the end of the last request, in which the engine must produce nothing.
_EPILOGUE_STEPS = 2


def play(
    engine_class: type[Engine],
    model: Any,
    schedule: Schedule,
    *,
    meter: list[ForwardCall],
    forced: Mapping[str, tuple[int, ...]] | None = None,
    hints: Mapping[str, Hints] | None = None,
    beside: Sequence[Beside] = (),
) -> Trace:
    """Run the schedule to its end, or to the step bound, or to the first exception.

    Args:
        model: the model as its library loaded it; its calls are appended to ``meter``.
        forced: for each request the tokens to feed; ``None`` for a free run.
        hints: for each request what drafts should contain.
        beside: other models, whose engines take turns with this one. Half of them are made before
            it, and take each step before it.

    Raises:
        MachineError: the engine failed because the disk is full or a permission is missing.
    """

    def run() -> Trace:
        made = Run(engine_class, model, schedule, meter, forced=forced, hints=hints)
        return made.play(beside)

    def unmetered() -> Trace:
        mark = len(meter)
        trace = run()
        del meter[mark:]
        return trace

    if schedule.weigh is Weigh.CYCLES:
        return cycled(unmetered)
    return on_other_thread(run) if schedule.decode_on_other_thread else run()


@dataclasses.dataclass(frozen=True)
class Beside:
    """A model with requests of its own, which an engine decodes beside another; nobody looks."""

    model: Any
    requests: tuple[Request, ...]


class Run:
    """The state of one run, which runs its whole schedule or is driven step by step.

    Attributes:
        stages: the last recorded stage of each request.
        produced: how many tokens each request has produced.
        steps: the record so far.
    """

    def __init__(
        self,
        engine_class: type[Engine],
        model: Any,
        schedule: Schedule,
        meter: list[ForwardCall],
        *,
        forced: Mapping[str, tuple[int, ...]] | None,
        hints: Mapping[str, Hints] | None,
    ) -> None:
        self._engine_class = engine_class
        self._model = model
        self._schedule = schedule
        self._meter = meter
        self._forced = forced
        self._hints = hints
        self._due: list[Arrival | Removal | Probe] = [
            *schedule.arrivals,
            *schedule.removals,
            *schedule.probes,
        ]
        self.stages: dict[str, Stage] = {}
        self._prompt_done: dict[str, int] = {}
        self.produced: dict[str, int] = {}
        self.steps: list[Step] = []
        self._removed_from: dict[str, Stage] = {}
        self._left: list[Mapping[str, int]] = []
        self._held_back: list[Submission] = []
        self._doing = "making the engine"
        self._stageless = Capability.STAGES not in engine_class.capabilities
        self._measuring = Measuring(schedule.weigh)
        self._others: list[Engine] = []
        self._others_failed: Exception | None = None

    def play(self, beside: Sequence[Beside] = ()) -> Trace:
        """Record the run; an exception in the engine ends it and is part of the record."""
        failure, out_of_steps, engine, held, kept = None, False, None, None, None
        counted = None
        try:
            half = len(beside) // 2
            self._open(beside[:half])
            engine = self._engine_class(self._model, self._schedule.options)
            self._open(beside[half:])
            with self._measuring.on():
                out_of_steps = self._loop(engine)
            if self._others_failed is not None:
                self._doing = "decoding other models by turns"
                raise self._others_failed
            held, counted = engine.cache_bytes(), engine.counted()
            kept = self._weigh(engine)
        except Exception as error:
            if lacks := machine_problem(error):
                raise MachineError(lacks) from error
            failure = failure_of(error, self._doing, theirs=True)
        finally:
            for one in (engine, *self._others):
                if one is not None:
                    one.close()
        return Trace(
            schedule=self._schedule,
            mode=Mode.FREE if self._forced is None else Mode.FORCED,
            steps=tuple(self.steps),
            failure=failure,
            out_of_steps=out_of_steps,
            cache_bytes_at_end=held,
            missed=tuple(_describe(item) for item in self._due) if failure is None else (),
            kept=kept,
            counted=counted,
            left=tuple(self._left),
        )

    def _open(self, beside: Sequence[Beside]) -> None:
        for one in beside:
            other = self._engine_class(one.model, self._schedule.options)
            self._others.append(other)
            other.insert([Submission(request) for request in one.requests])

    def _step_others(self, others: Sequence[Engine]) -> None:
        """A step of each; one that fails ends the run when this run's own engine is done."""
        for other in others:
            try:
                if self._others_failed is None:
                    other.step()
            except Exception as error:  # noqa: BLE001 - raised at the end of the run
                self._others_failed = error

    def _weigh(self, engine: Engine) -> KeptCache | None:
        if self._schedule.weigh is Weigh.STORED:
            return engine.give_up_stored()
        if self._schedule.weigh not in (Weigh.KEPT, Weigh.COMPUTED):
            return None
        first = self._schedule.requests[0].request_id
        return engine.give_up(first, computed=self._schedule.weigh is Weigh.COMPUTED)

    def _weigh_idle(self, engine: Engine) -> None:
        """Count what is left, if the schedule requests it and all requests so far have ended."""
        finished = [name for name, stage in self.stages.items() if stage is Stage.FINISHED]
        if not self._live() and self._measuring.idle(len(finished)):
            if (left := engine.left_behind()) is None:
                engine.give_up(finished[-1], computed=False)  # or its adapter keeps all caches
                left = self._measuring.left()
            self._left.append(left)

    def _loop(self, engine: Engine) -> bool:
        """Step until all requests have ended; return whether the step limit was reached."""
        bound = step_bound(self._schedule)
        epilogue = 0
        for index in range(bound):
            half = len(self._others) // 2
            self._step_others(self._others[:half])
            self.step(engine, index, probes=self._fire(engine, index))
            self._step_others(self._others[half:])
            self._weigh_idle(engine)
            if self._all_ended():
                epilogue += 1
                if epilogue > _EPILOGUE_STEPS:
                    return False
            elif not self._live() and self._due and not self._can_fire(index + 1):
                return False  # the rest can never fire; the trace lists it as missed
        return True

    def step(self, engine: Engine, index: int, *, probes: tuple[ProbeResult, ...] = ()) -> None:
        """One step of the engine, recorded."""
        self._admit(engine)
        self._look(engine)
        before, rows = dict(self.stages), dict(engine.rows())
        mark = len(self._meter)
        self._doing = f"step {index}"
        self._measuring.reads()  # earlier reads belong to no step
        output = engine.step()
        reads = self._measuring.reads()
        self._note(output)
        held = engine.cache_bytes()
        self.steps.append(
            Step(
                index=index,
                stages=before,
                output=output,
                forwards=tuple(self._meter[mark:]),
                cache_bytes=held,
                probes=probes,
                removed_from=self._removed_from,
                rows=rows,
                layers=tuple(engine.layers()),
                pending=engine.pending() if self._measuring.after(index) else None,
                alive=self._measuring.alive(index, held or 0),
                reads=reads,
            )
        )
        self._removed_from = {}
        self._look(engine)

    def _look(self, engine: Engine) -> None:
        ended = self._ended()
        self.stages.update({n: at for n, at in engine.stages().items() if n not in ended})

    def _note(self, output: StepOutput) -> None:
        for name, count in output.processed.items():
            self._prompt_done[name] = self._prompt_done.get(name, 0) + count
        for event in output.events:
            name = event.request_id
            self.produced[name] = self.produced.get(name, 0) + 1
            if event.finish_reason is not None and self.stages.get(name) is not Stage.REMOVED:
                self.stages[name] = Stage.FINISHED
            elif self.stages.get(name) is Stage.QUEUED and self._stageless:
                self.stages[name] = Stage.DECODE  # as its token shows

    def _fire(self, engine: Engine, index: int) -> tuple[ProbeResult, ...]:
        """Perform everything that is due, in schedule order; one action can trigger another."""
        results: list[ProbeResult] = []
        fired = True
        while fired:
            fired = False
            for item in list(self._due):
                if not self._reached(item.when, index):
                    continue
                self._due.remove(item)
                fired = True
                if isinstance(item, Arrival):
                    self.insert(engine, item.requests)
                elif isinstance(item, Removal):
                    self.remove(engine, item.request_ids, index)
                else:
                    self._doing = f"probe {item.kind} before step {index}"
                    results.append(engine.probe(item.kind))
        return tuple(results)

    def remove(self, engine: Engine, request_ids: Sequence[str], index: int) -> None:
        """Cancel requests before step ``index``."""
        self._doing = f"removing {', '.join(request_ids)} before step {index}"
        self._look(engine)
        self._removed_from |= {name: self.stages[name] for name in request_ids}
        waiting = {held.request.request_id for held in self._held_back}
        self._held_back = [
            held for held in self._held_back if held.request.request_id not in request_ids
        ]
        if inserted := [name for name in request_ids if name not in waiting]:
            engine.remove(inserted)
        self.stages.update(dict.fromkeys(request_ids, Stage.REMOVED))

    def insert(self, engine: Engine, requests: Sequence[Request]) -> None:
        """Insert requests, in one call; those without a slot wait."""
        self._doing = f"inserting {', '.join(r.request_id for r in requests)}"
        # What it continues from is taken when it arrives: later, that has grown.
        submissions = [self._submission(engine, request) for request in requests]
        if engine.slots:
            self._held_back += submissions
        else:
            engine.insert(submissions)
        self.stages.update({r.request_id: Stage.QUEUED for r in requests})
        self._admit(engine)

    def _admit(self, engine: Engine) -> None:
        """Insert, in one call, the requests that waited longest and that there are slots for."""
        if not self._held_back:
            return
        slots = min(engine.slots, self._schedule.options.completion_batch_size)
        free = slots - (len(self._live()) - len(self._held_back))
        if free <= 0:
            return
        now, self._held_back = self._held_back[:free], self._held_back[free:]
        self._doing = f"inserting {', '.join(held.request.request_id for held in now)}"
        engine.insert(now)

    def _submission(self, engine: Engine, request: Request) -> Submission:
        prefix = None
        if request.continues is not None:
            prefix = engine.extract(request.continues.request_id)
            prefix = engine.reloaded(prefix) if request.continues.saved else prefix
        forced = self._forced[request.request_id] if self._forced is not None else None
        hints = self._hints[request.request_id] if self._hints is not None else None
        return Submission(request, forced=forced, prefix=prefix, hints=hints)

    def _reached(self, trigger: Trigger, index: int) -> bool:
        name = trigger.request_id
        if name is None:
            return index >= trigger.count
        if self.stages.get(name) is not trigger.stage:
            return False
        done = {Stage.PREFILL: self._prompt_done, Stage.DECODE: self.produced}.get(trigger.stage)
        return done is None or done.get(name, 0) >= trigger.count

    def _can_fire(self, index: int) -> bool:
        return any(i.when.request_id is None or self._reached(i.when, index) for i in self._due)

    def _ended(self) -> set[str]:
        ended = (Stage.FINISHED, Stage.REMOVED)
        return {name for name, stage in self.stages.items() if stage in ended}

    def _live(self) -> set[str]:
        return set(self.stages) - self._ended()

    def _all_ended(self) -> bool:
        return not self._due and not self._live()


MEDIUM = 800
"""The most embeddings of a medium beyond its tokens: those of llava_bunny are 728."""


def step_bound(schedule: Schedule) -> int:
    """The step limit of a run: one step for each prompt and output token, and a few more.

    Even an engine with a single slot that prefills one token per step needs no more. A medium may
    be one token in the prompt, and as many embeddings in the model as the picture has patches.
    """
    latest = max((a.when.count for a in schedule.arrivals if a.when.request_id is None), default=0)
    work = sum(len(r.prompt) + r.max_tokens + 4 + MEDIUM * len(r.media) for r in schedule.requests)
    return latest + work + 8


def _describe(item: Arrival | Removal | Probe) -> str:
    if isinstance(item, Arrival):
        what = f"arrival of {', '.join(r.request_id for r in item.requests)}"
    elif isinstance(item, Removal):
        what = f"removal of {', '.join(item.request_ids)}"
    else:
        what = f"probe {item.kind}"
    when = item.when
    return f"{what} (when {when.request_id} is in {when.stage} with {when.count} done)"


# The process's one other thread, for what must be shown to work from there too --------------------

T = TypeVar("T")


def on_other_thread(work: Callable[[], T]) -> T:
    """Call ``work`` on the other thread, wait, and return its result.

    All calls share one thread that never ends: each new thread would get its own mlx streams, whose
    threads outlive it and slow down everything that comes after.
    """
    future: Future[T] = Future()
    _jobs().put((work, future))
    return future.result()


@functools.cache
def _jobs() -> SimpleQueue[tuple[Callable[[], Any], Future[Any]]]:
    """The queue of the other thread, which is started by the first call."""
    jobs: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()

    def run() -> None:
        while True:
            work, future = jobs.get()
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001  (raised again in the caller)
                future.set_exception(error)

    threading.Thread(target=run, name="conformance-other", daemon=True).start()
    return jobs


# Measurements during a run besides model calls, as the schedule requests: memory, reads -----------

# Measured after each step, including the graph behind the caches.
_EACH_STEP = (Weigh.GRAPH, Weigh.ALIVE)
# Steps between two measurements, if not every step is measured.
_SAMPLED = 10


def cycled(run: Callable[[], Trace]) -> Trace:
    """The trace of the last of many runs, with what each of them left; or of one that failed."""
    from conformance.backend import memory  # noqa: PLC0415

    left: list[Mapping[str, int]] = []
    with memory.only_new_objects(), memory.exact_buffers():
        for _ in range(CYCLES):
            trace = run()
            if trace.failure is not None or trace.out_of_steps:
                return trace
            del trace
            left.append(memory.left(recorded=False))
    return dataclasses.replace(run(), left=tuple(left))


# mlx is imported only where it is needed: judging a foreign trace needs no mlx.
class Measuring:
    """The measurements of one run."""

    def __init__(self, weigh: Weigh | None) -> None:
        self._weigh = weigh
        self._reads: list[str] | None = None
        self._taken = 0
        self._ended = 0

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Context around all steps."""
        with contextlib.ExitStack() as stack:
            if self._weigh in (Weigh.ALIVE, Weigh.SAMPLED, Weigh.IDLE):
                from conformance.backend import memory  # noqa: PLC0415

                stack.enter_context(memory.only_new_objects())
                stack.enter_context(memory.exact_buffers())
            if self._weigh is Weigh.READS:
                from conformance.backend.host_reads import host_reads  # noqa: PLC0415

                self._reads = stack.enter_context(host_reads())
            yield

    def after(self, index: int) -> bool:
        """Whether memory is measured after that step."""
        sampled = self._weigh is Weigh.SAMPLED and index % _SAMPLED == 0
        return sampled or self._weigh in _EACH_STEP

    def alive(self, index: int, cache_bytes: int) -> Alive | None:
        """The objects alive after that step."""
        if self._weigh is Weigh.GRAPH or not self.after(index):
            return None
        from conformance.backend.memory import alive  # noqa: PLC0415

        return alive(cache_bytes)

    def idle(self, ended: int) -> bool:
        """Whether counts are due: no request is left, and more have ended than before."""
        due = self._weigh is Weigh.IDLE and ended > self._ended
        self._ended = ended if due else self._ended
        return due

    def left(self) -> Mapping[str, int]:
        """Counts of what is alive beside the run's record."""
        from conformance.backend.memory import left  # noqa: PLC0415

        return left(recorded=True)

    def reads(self) -> tuple[str, ...] | None:
        """The host reads since the last call; ``None`` if they are not counted."""
        if self._reads is None:
            return None
        new = tuple(self._reads[self._taken :])
        self._taken = len(self._reads)
        return new
