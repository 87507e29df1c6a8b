"""Plays a schedule on an engine and records what happens. Judges nothing.

One step of a run: fire what is due (arrivals, removals, probes), note where each request is, call
``engine.step()``, note what came out and which model calls it took.
"""

from __future__ import annotations

import functools
import re
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from conformance.engine import Engine, Submission
from conformance.errors import Unsupported
from conformance.schedule import (
    Arrival,
    Probe,
    Removal,
    Request,
    Schedule,
    Stage,
    Trigger,
    Weigh,
)
from conformance.trace import (
    Failure,
    ForwardCall,
    KeptCache,
    Mode,
    ProbeResult,
    Step,
    StepOutput,
    Trace,
)

# Steps after the last request has ended, in which nothing more may come out.
_EPILOGUE_STEPS = 2

_UNSUPPORTED = re.compile(
    r"not (yet )?support|only supports?\b|unsupported|no metal back-?end|not implemented"
    r"|no implementation for",
    re.I,
)


def play(
    engine_class: type[Engine],
    model: Any,
    schedule: Schedule,
    *,
    meter: list[ForwardCall],
    forced: Mapping[str, tuple[int, ...]] | None = None,
    hints: Mapping[str, tuple[int, ...]] | None = None,
) -> Trace:
    """Run the schedule to its end, or to the step bound, or to the first exception.

    Args:
        model: as its library loaded it; ``meter`` is the list that its calls are appended to.
        forced: for each request the tokens to feed; ``None`` for a free run.
        hints: for each request the tokens that a draft should foresee.
    """
    run = _Run(engine_class, model, schedule, meter, forced=forced, hints=hints)
    if not schedule.decode_on_other_thread:
        return run.play()
    return _on_other_thread(run.play)


def _on_other_thread(play: Callable[[], Trace]) -> Trace:
    """Call ``play`` on the process's one other thread, and wait for it.

    One for all runs, and never ended: each new thread would get streams of its own from mlx, whose
    threads outlive it and slow down everything that comes after.
    """
    answer: Future[Trace] = Future()
    _other_thread().put((play, answer))
    return answer.result()


@functools.cache
def _other_thread() -> SimpleQueue[tuple[Callable[[], Trace], Future[Trace]]]:
    """The queue of the other thread, which is started by the first call."""
    jobs: SimpleQueue[tuple[Callable[[], Trace], Future[Trace]]] = SimpleQueue()

    def work() -> None:
        while True:
            play, answer = jobs.get()
            try:
                answer.set_result(play())
            except BaseException as error:  # noqa: BLE001 - it belongs to the caller
                answer.set_exception(error)

    threading.Thread(target=work, name="conformance-other", daemon=True).start()
    return jobs


class _Run:
    """The state of one run."""

    def __init__(
        self,
        engine_class: type[Engine],
        model: Any,
        schedule: Schedule,
        meter: list[ForwardCall],
        *,
        forced: Mapping[str, tuple[int, ...]] | None,
        hints: Mapping[str, tuple[int, ...]] | None,
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
        self._stages: dict[str, Stage] = {}
        self._prompt_done: dict[str, int] = {}
        self._produced: dict[str, int] = {}
        self._steps: list[Step] = []
        self._removed_from: dict[str, Stage] = {}
        self._doing = "making the engine"

    def play(self) -> Trace:
        """Record the run; whatever the engine raises ends it and is part of the record."""
        failure, out_of_steps, engine, held, kept = None, False, None, None, None
        try:
            engine = self._engine_class(self._model, self._schedule.options)
            out_of_steps = self._loop(engine)
            held = engine.cache_bytes()
            kept = self._weigh(engine)
        except Exception as error:  # noqa: BLE001 - the library's failure is the result
            failure = failure_of(error, self._doing)
        finally:
            if engine is not None:
                engine.close()
        return Trace(
            schedule=self._schedule,
            mode=Mode.FREE if self._forced is None else Mode.FORCED,
            steps=tuple(self._steps),
            failure=failure,
            out_of_steps=out_of_steps,
            cache_bytes_at_end=held,
            missed=tuple(_in_words(item) for item in self._due) if failure is None else (),
            kept=kept,
        )

    def _weigh(self, engine: Engine) -> KeptCache | None:
        if self._schedule.weigh not in (Weigh.KEPT, Weigh.COMPUTED):
            return None
        first = self._schedule.requests[0].request_id
        return engine.give_up(first, computed=self._schedule.weigh is Weigh.COMPUTED)

    def _loop(self, engine: Engine) -> bool:
        """Step until all requests have ended. Returns whether the step bound was hit."""
        bound = step_bound(self._schedule)
        epilogue = 0
        for index in range(bound):
            self._removed_from = {}
            self._step(engine, index, probes=self._fire(engine, index))
            if self._all_ended():
                epilogue += 1
                if epilogue > _EPILOGUE_STEPS:
                    return False
            elif not self._live() and self._due and not self._can_fire(index + 1):
                return False  # the rest can never fire; the trace says what was missed
        return True

    def _step(self, engine: Engine, index: int, *, probes: tuple[ProbeResult, ...]) -> None:
        self._look(engine)
        before, rows = dict(self._stages), dict(engine.rows())
        mark = len(self._meter)
        self._doing = f"step {index}"
        output = engine.step()
        self._note(output)
        self._steps.append(
            Step(
                index=index,
                stages=before,
                output=output,
                forwards=tuple(self._meter[mark:]),
                cache_bytes=engine.cache_bytes(),
                probes=probes,
                removed_from=self._removed_from,
                rows=rows,
                layers=tuple(engine.layers()),
                pending=engine.pending() if self._schedule.weigh is Weigh.GRAPH else None,
            )
        )
        self._look(engine)

    def _look(self, engine: Engine) -> None:
        ended = self._ended()
        self._stages.update({n: at for n, at in engine.stages().items() if n not in ended})

    def _note(self, output: StepOutput) -> None:
        for name, count in output.processed.items():
            self._prompt_done[name] = self._prompt_done.get(name, 0) + count
        for event in output.events:
            name = event.request_id
            self._produced[name] = self._produced.get(name, 0) + 1
            if event.finish_reason is not None and self._stages.get(name) is not Stage.REMOVED:
                self._stages[name] = Stage.FINISHED

    def _fire(self, engine: Engine, index: int) -> tuple[ProbeResult, ...]:
        """Do all that is due, in the order of the schedule; one firing can make another due."""
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
                    self._insert(engine, item.requests)
                elif isinstance(item, Removal):
                    self._doing = f"removing {', '.join(item.request_ids)} before step {index}"
                    self._look(engine)
                    self._removed_from |= {n: self._stages[n] for n in item.request_ids}
                    engine.remove(item.request_ids)
                    self._stages.update(dict.fromkeys(item.request_ids, Stage.REMOVED))
                else:
                    self._doing = f"probe {item.kind} before step {index}"
                    results.append(engine.probe(item.kind))
        return tuple(results)

    def _insert(self, engine: Engine, requests: Sequence[Request]) -> None:
        self._doing = f"inserting {', '.join(r.request_id for r in requests)}"
        engine.insert([self._submission(engine, request) for request in requests])
        self._stages.update({r.request_id: Stage.QUEUED for r in requests})

    def _submission(self, engine: Engine, request: Request) -> Submission:
        prefix = engine.extract(request.continues.request_id) if request.continues else None
        forced = self._forced[request.request_id] if self._forced is not None else None
        hints = self._hints[request.request_id] if self._hints is not None else None
        return Submission(request, forced=forced, prefix=prefix, hints=hints)

    def _reached(self, trigger: Trigger, index: int) -> bool:
        name = trigger.request_id
        if name is None:
            return index >= trigger.count
        if self._stages.get(name) is not trigger.stage:
            return False
        done = {Stage.PREFILL: self._prompt_done, Stage.DECODE: self._produced}.get(trigger.stage)
        return done is None or done.get(name, 0) >= trigger.count

    def _can_fire(self, index: int) -> bool:
        return any(i.when.request_id is None or self._reached(i.when, index) for i in self._due)

    def _ended(self) -> set[str]:
        ended = (Stage.FINISHED, Stage.REMOVED)
        return {name for name, stage in self._stages.items() if stage in ended}

    def _live(self) -> set[str]:
        return set(self._stages) - self._ended()

    def _all_ended(self) -> bool:
        return not self._due and not self._live()


def step_bound(schedule: Schedule) -> int:
    """Steps that a run may take: one for each prompt token and output token, and some to spare.

    Even an engine with a single slot, prefilling one token a step, needs no more.
    """
    latest = max((a.when.count for a in schedule.arrivals if a.when.request_id is None), default=0)
    work = sum(len(r.prompt) + r.max_tokens + 4 for r in schedule.requests)
    return latest + work + 8


def says_unsupported(error: BaseException) -> bool:
    """Whether the exception is the library's own word that it cannot do this here.

    Not a crash: nobody was misled. Its words go into the result, and expectations must name them.
    """
    if isinstance(error, (Unsupported, NotImplementedError)):
        return True
    # "'NoneType' object does not support item assignment" is Python's word, not the library's.
    if isinstance(error, TypeError):
        return False
    return bool(_UNSUPPORTED.search(str(error)))


def failure_of(error: BaseException, doing: str) -> Failure:
    """An exception as data: its type, text, and the last frame that is not ours."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = str(Path(__file__).parent)
    library = [f for f in frames if not f.filename.startswith(ours)] or frames
    last = library[-1]
    path = "/".join(Path(last.filename).parts[-3:])
    return Failure(
        type_name=type(error).__name__,
        message=str(error),
        frame=f"{path}:{last.lineno}",
        doing=doing,
        unsupported=says_unsupported(error),
    )


def _in_words(item: Arrival | Removal | Probe) -> str:
    if isinstance(item, Arrival):
        what = f"arrival of {', '.join(r.request_id for r in item.requests)}"
    elif isinstance(item, Removal):
        what = f"removal of {', '.join(item.request_ids)}"
    else:
        what = f"probe {item.kind}"
    when = item.when
    return f"{what} (when {when.request_id} is in {when.stage} with {when.count} done)"
