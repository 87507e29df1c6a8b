"""Runs whose rows draw with the library's own random numbers: the oracle follows these rows.

Other rows of the run have a single stream of their own, as in every run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np

from conformance.checks import Play
from conformance.core import numerics
from conformance.core.engine import Capability, Engine
from conformance.core.numerics import Envelope
from conformance.core.schedule import Request, Schedule
from conformance.core.trace import Stream, Trace
from conformance.reference.noise import FEW_RUNS, PERTURBED_RUNS, THOROUGH_RUNS
from conformance.reference.oracle import cut
from conformance.reference.subject import Subject


def followed(subject: Subject, engine: type[Engine], schedule: Schedule, trace: Trace) -> Play:
    """The run with, for each row that draws, the single stream's logprobs at its own tokens."""
    oracle, options = subject.oracle, schedule.options
    with subject.phases("single stream"):
        want = _streams(subject, schedule, trace)

    @functools.cache
    def noise(name: str, *, runs: int, steps: int | None = None) -> Envelope:
        with subject.phases("noise"):
            request = schedule.request(name)
            if not request.random:
                return oracle.envelope(request, options, schedule, runs=runs, steps=steps)
            return oracle.noise_along(request, options, want[name], runs=runs)

    @functools.cache
    def usual() -> Envelope:
        """The largest noise of the first row that draws, for all: each has its own tokens."""
        found = noise(_drawing(schedule)[0].request_id, runs=FEW_RUNS)
        steps = max(len(stream.tokens) for stream in want.values())
        level = float(max(found.full.max(), found.top.max()))
        flat = np.full(steps, level, np.float32)
        return Envelope(flat, flat, found.floor, few=True)

    def wider(name: str, steps: int) -> list[Callable[[], Envelope]]:
        few, *more = (
            functools.partial(noise, name, runs=runs, steps=steps)
            for runs in (FEW_RUNS, PERTURBED_RUNS, THOROUGH_RUNS)
        )
        return [usual if schedule.request(name).random else few, *more]

    return Play(
        schedule,
        (trace,),
        want,
        floor=lambda name: oracle.floor_envelope(want[name], options),
        envelope=functools.partial(noise, runs=PERTURBED_RUNS),
        wider=wider,
        full_logprobs=Capability.LOGPROBS in engine.capabilities and options.drafting is None,
        staged=Capability.STAGES in engine.capabilities,
        engine=engine.name,
    )


def _drawing(schedule: Schedule) -> list[Request]:
    return [request for request in schedule.requests if request.random]


def _streams(subject: Subject, schedule: Schedule, trace: Trace) -> Mapping[str, Stream]:
    """The oracle's stream of each request; of those that draw, at as many tokens as are due.

    One pass over a row's tokens is a tenth of the work of its single stream, and has the same
    logprobs if that holds for the first row. No pass applies logits processors.
    """
    drawing = _drawing(schedule)
    tokens = {request.request_id: _tokens(subject, request, trace) for request in drawing}
    passed = functools.partial(subject.library.teacher_forced, subject.model)
    options = schedule.options

    def alone(request: Request, tokens: tuple[int, ...]) -> np.ndarray:
        table = subject.library.single_stream(
            subject.model, request, options=options, steps=len(tokens), forced=tokens
        ).stream.logprobs
        assert table is not None
        return table

    def stream(request: Request, table: np.ndarray) -> Stream:
        return cut(Stream(tokens[request.request_id], table), request)

    first = next((r for r in drawing if not r.processors), drawing[0])
    table = alone(first, tokens[first.request_id])
    want = Stream(tokens[first.request_id], table)
    again = passed(first, want.tokens, options=options)
    found, _ = numerics.settle(
        lambda noise: numerics.deviation(again, table, noise),
        subject.oracle.floor_envelope(want, options),
        [
            functools.partial(subject.oracle.noise_along, first, options, want, runs=runs)
            for runs in (FEW_RUNS, PERTURBED_RUNS)
        ],
    )

    def follow(request: Request) -> np.ndarray:
        if request is first:
            return table
        made = tokens[request.request_id]
        one_pass = found.within_noise and not request.processors
        return passed(request, made, options=options) if one_pass else alone(request, made)

    others = (request for request in schedule.requests if not request.random)
    return {request.request_id: stream(request, follow(request)) for request in drawing} | {
        request.request_id: subject.oracle.solo(request, options, schedule) for request in others
    }


def _tokens(subject: Subject, request: Request, trace: Trace) -> tuple[int, ...]:
    """The row's tokens; where it has too few, as the protocol check says, any others.

    Not after a stop sequence: there the stream is cut.
    """
    got = trace.stream(request.request_id).tokens[: request.max_tokens]
    return got + (subject.family.tokens[0],) * (request.max_tokens - len(got))
