"""A golden's requests in batches: played by an engine, held against the golden and against now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from conformance.checks.forced import common_steps
from conformance.core import numerics
from conformance.core.engine import Capability, Engine
from conformance.core.numerics import Envelope
from conformance.core.schedule import Arrival, Request, Schedule
from conformance.core.trace import Stream, Trace
from conformance.core.verdict import Verdict
from conformance.reference.subject import Subject
from conformance.run.runner import play
from conformance.scenarios.batch import RAGGED
from conformance.scenarios.media import MIXED_MODALITY
from conformance.tools.golden.compare import Comparison, settle
from conformance.tools.golden.difference import Difference, Part
from conformance.tools.golden.format import Recorded


@dataclass(frozen=True)
class Line:
    """One request: its golden, its single stream now, and how to measure its noise.

    ``single`` was fed the golden's tokens, so both know each step; ``wider`` measure the noise
    there from few runs and from many.
    """

    recorded: Recorded
    single: Stream
    wider: Sequence[Callable[[], Envelope]]


@dataclass(frozen=True)
class Batch:
    """Requests that are decoded together; ``scenario`` is the rung that does the same."""

    schedule: Schedule
    scenario: str


def batches(requests: Sequence[Request], engine: type[Engine]) -> Iterator[Batch]:
    """Prompts of text in one ragged batch; each kind of media between the longest and a short one.

    Where every request holds a medium they are one batch. They are batches of two scenarios, under
    the names of their schedules there, so that what is known of those is known here.
    """
    of_text = [r for r in requests if not r.media] or list(requests)
    yield Batch(Schedule("ragged", (Arrival(tuple(of_text)),)), RAGGED.name)
    if not engine.capabilities >= MIXED_MODALITY.needs:
        return
    beside = [r for r in of_text if r.request_id in ("long", "short")]
    for request in requests:
        if request not in of_text:
            name = f"{request.request_id}_beside_text"
            yield Batch(Schedule(name, (Arrival((request, *beside)),)), MIXED_MODALITY.name)


def batched_differences(
    subject: Subject, engine: type[Engine], lines: Mapping[str, Line]
) -> Iterator[Difference]:
    """What an engine's batches differ in from the golden, and from the single streams now."""
    for batch in batches([line.recorded.request for line in lines.values()], engine):
        told = partial(
            Difference,
            engine=engine.name,
            schedule=batch.schedule.name,
            scenario=batch.scenario,
        )
        trace = _played(subject, engine, batch.schedule, lines)
        if trace.failure is not None:
            verdict = Verdict.UNSUPPORTED if trace.failure.unsupported else Verdict.CRASH
            first = batch.schedule.requests[0].request_id
            yield told(Part.BATCH, first, f"raised {trace.failure}", verdict=verdict)
            continue
        for request in batch.schedule.requests:
            name = request.request_id
            for part, text, verdict in _compared(lines[name], trace.stream(name)):
                yield told(part, name, text, verdict=verdict)


def _played(
    subject: Subject, engine: type[Engine], schedule: Schedule, lines: Mapping[str, Line]
) -> Trace:
    """The batch, fed the golden's tokens where the engine can be fed."""
    tokens = {request.request_id: lines[request.request_id] for request in schedule.requests}
    forced = {name: line.recorded.tokens for name, line in tokens.items()}
    subject.library.churn()
    with subject.around(schedule.name):
        return play(
            engine,
            subject.model,
            schedule,
            meter=subject.meter,
            forced=forced if Capability.FORCED in engine.capabilities else None,
        )


Told = tuple[Part, str, Verdict]


def _compared(line: Line, got: Stream) -> Iterator[Told]:
    """What one row differs in."""
    name = line.recorded.request.request_id
    if len(got.tokens) < len(line.recorded.tokens):
        text = f"ended after {len(got.tokens)} of {len(line.recorded.tokens)} tokens"
        yield Part.BATCH, f"request {name!r}: {text}", Verdict.PROTOCOL
        return
    if got.logprobs is None:
        yield from _by_tokens(line.recorded, got)
        return
    # Of a row that was not fed, the steps that saw the golden's history.
    steps = common_steps(got, line.single)
    rows = got.logprobs[:steps]
    found = settle(line.recorded, rows, line.wider)
    verdict = _called(found, rows)
    if found.step is not None and found.step < steps:
        yield Part.GOLDEN, str(found), verdict
    text = _unlike(rows, line)
    if text:
        yield Part.BATCH, f"request {name!r}, {text}", verdict


def _by_tokens(recorded: Recorded, got: Stream) -> Iterator[Told]:
    """Of an engine that shows no whole distribution: its tokens, and their logprobs if shown."""
    for step, (token, want) in enumerate(zip(got.tokens, recorded.tokens, strict=False)):
        where = f"request {recorded.request.request_id!r}, step {step}"
        margin, noise = recorded.margins[step], recorded.noise[step]
        if token != want:
            if margin > 2 * numerics.FACTOR * noise:
                what = f"token {token} in place of {want} (margin {margin:.3g} nats)"
                yield Part.GOLDEN, f"{where}: {what}, noise {noise:.3g}", Verdict.DIVERGED
            return  # what comes after it saw another history
        if got.token_logprobs is None:
            continue
        off = abs(float(got.token_logprobs[step]) - dict(recorded.top[step])[want])
        if not off <= numerics.FACTOR * noise:
            what = f"token {token}: its logprob is {off:.3g} nats off, noise {noise:.3g}"
            yield Part.GOLDEN, f"{where}: {what}", Verdict.DRIFT
            return


def _called(found: Comparison, rows: np.ndarray) -> Verdict:
    if np.isnan(rows).any():
        return Verdict.NAN
    return Verdict.DRIFT if found.turned is None else Verdict.DIVERGED


def _unlike(rows: np.ndarray, line: Line) -> str:
    """How logprobs ``[steps, vocab]`` leave the single stream's; empty where rounding explains it.

    Over the whole vocabulary: both are at hand, and the golden only keeps the most likely tokens.
    """
    assert line.single.logprobs is not None
    want = line.single.logprobs[: len(rows)]
    floor = numerics.flat_envelope(len(rows), numerics.floor("float32", want))
    found, noise = numerics.settle(
        lambda noise: numerics.deviation(rows, want, noise), floor, line.wider
    )
    step = found.first_bad_step
    if step is None:
        return ""
    return (
        f"step {step}: logprobs {found.difference[step]:.3g} nats off, noise {noise.full[step]:.3g}"
    )
