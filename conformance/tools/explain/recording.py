"""Runs a failing schedule once more and records the inputs and outputs of every module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from conformance.backend.module_hooks import Pass, record_calls
from conformance.core.engine import Capability, Engine
from conformance.core.engine_options import EngineOptions
from conformance.core.rounds import hints_of
from conformance.core.schedule import Request, Schedule
from conformance.core.trace import StepOutput, Stream, Trace
from conformance.reference.subject import Subject
from conformance.run.runner import play
from conformance.tools.explain.activations import SingleStream, by_position, noise

# A module's error counts if it is more than this many times its noise ...
FACTOR = 8.0
# ... and more than this: the rounding of one layer.
FLOOR = {"float32": 3e-5, "float16": 8e-3, "bfloat16": 6e-2}


@dataclass(frozen=True)
class Level:
    """The relative error above which a module or a cache entry counts as different."""

    noise: Mapping[str, float]
    floor: float

    def of(self, path: str) -> float:
        """The level of the module at ``path``; an unmeasured module gets that of the noisiest."""
        return max(FACTOR * self.noise.get(path, self._worst), self.floor)

    @property
    def of_entries(self) -> float:
        """The level of caches, whose contents come from many modules."""
        return max(FACTOR * self._worst, self.floor)

    @property
    def _worst(self) -> float:
        return max(self.noise.values(), default=0.0)


@dataclass(frozen=True)
class Recording:
    """A batched run and the single streams of its requests.

    Attributes:
        passes: of the batched run; ``steps`` holds the step of each, ``None`` after the last.
        sequences: all tokens of each request, including its history.
        begun: how many of these tokens are history.
    """

    trace: Trace
    passes: tuple[Pass, ...]
    steps: tuple[int | None, ...]
    want: Mapping[str, Stream]
    sequences: Mapping[str, tuple[int, ...]]
    begun: Mapping[str, int]
    single: Mapping[str, SingleStream]
    level: Level


def record(subject: Subject, engine: type[Engine], schedule: Schedule, dtype: str) -> Recording:
    """Run the schedule, feeding its rows the oracle's tokens if the engine can be forced."""
    options, oracle = schedule.options, subject.oracle
    want = {r.request_id: oracle.solo(r, options, schedule) for r in schedule.requests}
    tokens = {name: stream.tokens for name, stream in want.items()}
    drafting = options.drafting is not None
    hints = {name: hints_of(stream, subject.family.tokens) for name, stream in want.items()}
    forced = tokens if Capability.FORCED in engine.capabilities and not drafting else None
    tree = subject.library.decoder(subject.model)
    subject.library.churn()
    ends: list[int] = []
    with subject.around(schedule.name), record_calls(tree) as passes:
        trace = play(
            _counting(engine, passes, ends),
            subject.model_for(engine),
            schedule,
            meter=subject.meter,
            forced=forced,
            hints=hints if drafting else None,
        )
    history = {r.request_id: _history(r, schedule, want) for r in schedule.requests}
    sequences = {
        r.request_id: history[r.request_id] + r.prompt + tokens[r.request_id]
        for r in schedule.requests
    }
    made: dict[bytes, SingleStream] = {}
    single = {}
    for request in schedule.requests:
        name = request.request_id
        plain = _plain(request, history[name])
        key = msgspec.json.encode((plain, tokens[name]))
        if key not in made:
            made[key] = _single(subject, plain, options, tokens[name])
        single[name] = made[key]
    first = schedule.requests[0]
    return Recording(
        trace,
        tuple(passes),
        _steps(ends, len(passes)),
        want,
        sequences,
        {name: len(found) for name, found in history.items() if found},
        single,
        _level(subject, _plain(first, history[first.request_id]), tokens[first.request_id], dtype),
    )


def _history(request: Request, schedule: Schedule, want: Mapping[str, Stream]) -> tuple[int, ...]:
    """All tokens before the request's own: those of the request that it continues."""
    if request.continues is None:
        return ()
    source = schedule.request(request.continues.request_id)
    produced = want[source.request_id].tokens[: request.continues.after]
    return _history(source, schedule, want) + source.prompt + produced


def _plain(request: Request, history: tuple[int, ...]) -> Request:
    """The request with its history included in its prompt."""
    if not history:
        return msgspec.structs.replace(request, request_id="single")
    # The pieces end where the cache may have been saved: before or after the last token.
    pieces = (len(history) - 1, 1, len(request.prompt))
    return msgspec.structs.replace(
        request,
        request_id="single",
        prompt=history + request.prompt,
        segments=tuple(piece for piece in pieces if piece),
        continues=None,
    )


def _single(
    subject: Subject, request: Request, options: EngineOptions, tokens: tuple[int, ...]
) -> SingleStream:
    with record_calls(subject.library.decoder(subject.model)) as passes:
        subject.library.single_stream(
            subject.model, request, options=options, steps=len(tokens), forced=tokens
        )
    return by_position(passes, request.prompt + tokens)


def _level(subject: Subject, request: Request, tokens: tuple[int, ...], dtype: str) -> Level:
    """How far perturbations by units in the last place change each module's output."""
    library, tree = subject.library, subject.library.decoder(subject.model)
    options = EngineOptions()
    with record_calls(tree, caches=False) as right:
        library.teacher_forced(subject.model, request, tokens, options=options)
    with record_calls(tree, caches=False) as moved:
        for seed in range(2):
            library.teacher_forced(
                subject.model, request, tokens, options=options, ulps=2.0, seed=seed
            )
    return Level(noise(right * 2, moved), FLOOR[dtype])


def _counting(engine: type[Engine], passes: Sequence[Pass], ends: list[int]) -> type[Engine]:
    """A subclass of the engine that appends the number of passes to ``ends`` after each step."""

    def step(self: Engine) -> StepOutput:
        output = engine.step(self)
        ends.append(len(passes))
        return output

    return type(engine.__name__, (engine,), {"step": step})


def _steps(ends: Sequence[int], count: int) -> tuple[int | None, ...]:
    """The step of each pass; ``None`` for passes after the last completed step."""
    begins = [0, *ends]
    known = [index for index, n in enumerate(ends) for _ in range(begins[index], n)]
    return (*known, *[None] * (count - len(known)))
