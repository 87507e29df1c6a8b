"""Runs a golden's requests in batches; compares them with the golden and today's single stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

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
from conformance.tools.golden.compare import Comparison, common_shift, settle
from conformance.tools.golden.difference import Difference, Part
from conformance.tools.golden.format import Recorded


@dataclass(frozen=True)
class Line:
    """One request: its golden, its single stream now, and how to measure its noise.

    ``single`` was fed the golden's tokens, so each step can be compared. ``wider`` measure its
    noise, from few runs and from many. A golden from another device was rounded differently:
    ``between_devices`` measure this, and ``shift`` is the part that all logprobs of a step share.
    """

    recorded: Recorded
    single: Stream
    wider: Sequence[Callable[[], Envelope]]
    between_devices: Sequence[Callable[[], Envelope]] = ()
    elsewhere: bool = False

    @cached_property
    def shift(self) -> np.ndarray:
        """See ``compare.common_shift``; 0 for a golden of this device."""
        assert self.single.logprobs is not None
        if not self.elsewhere:
            return np.zeros(len(self.single.logprobs))
        return common_shift(self.recorded, self.single.logprobs)

    def settle(self, logprobs: np.ndarray) -> Comparison:
        """Compare logprobs ``[steps, vocab]`` computed now with the golden."""
        rows = logprobs - self.shift[: len(logprobs), None]
        between = self.between_devices if self.elsewhere else ()
        return settle(self.recorded, rows, (*self.wider, *between))


@dataclass(frozen=True)
class Batch:
    """Requests that are decoded together; ``scenario`` is the rung with the same batch."""

    schedule: Schedule
    scenario: str


def batches(requests: Sequence[Request], engine: type[Engine]) -> Iterator[Batch]:
    """Text prompts in one ragged batch; each kind of media between the longest and a short one.

    If all requests hold media, they form one batch. The batches have the names of two scenarios and
    of their schedules, so that the scenarios' known defects apply here.
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
    """The differences of an engine's batches from the golden and from today's single streams."""
    for batch in batches([line.recorded.request for line in lines.values()], engine):
        difference = partial(
            Difference,
            engine=engine.name,
            schedule=batch.schedule.name,
            scenario=batch.scenario,
        )
        trace = _played(subject, engine, batch.schedule, lines)
        if trace.failure is not None:
            verdict = Verdict.UNSUPPORTED if trace.failure.unsupported else Verdict.CRASH
            first = batch.schedule.requests[0].request_id
            yield difference(Part.BATCH, first, f"raised {trace.failure}", verdict=verdict)
            continue
        for request in batch.schedule.requests:
            name = request.request_id
            for part, text, verdict in _compared(lines[name], trace.stream(name)):
                yield difference(part, name, text, verdict=verdict)


def _played(
    subject: Subject, engine: type[Engine], schedule: Schedule, lines: Mapping[str, Line]
) -> Trace:
    """Run the batch, feeding it the golden's tokens if the engine can be forced."""
    tokens = {request.request_id: lines[request.request_id] for request in schedule.requests}
    forced = {name: line.recorded.tokens for name, line in tokens.items()}
    subject.library.churn()
    with subject.around(schedule.name):
        return play(
            engine,
            subject.model_for(engine),
            schedule,
            meter=subject.meter,
            forced=forced if Capability.FORCED in engine.capabilities else None,
        )


_Compared = tuple[Part, str, Verdict]


def _compared(line: Line, got: Stream) -> Iterator[_Compared]:
    """The differences of one row."""
    name = line.recorded.request.request_id
    if len(got.tokens) < len(line.recorded.tokens):
        text = f"ended after {len(got.tokens)} of {len(line.recorded.tokens)} tokens"
        yield Part.BATCH, f"request {name!r}: {text}", Verdict.PROTOCOL
        return
    if got.logprobs is None:
        yield from _by_tokens(line, got)
        return
    # Of a row that was not forced, only the steps with the golden's history are compared.
    steps = common_steps(got, line.single)
    rows = got.logprobs[:steps]
    found = line.settle(rows)
    verdict = _verdict(found, rows)
    if found.step is not None and found.step < steps:
        yield Part.GOLDEN, str(found), verdict
    text = _deviation(rows, line)
    if text:
        yield Part.BATCH, f"request {name!r}, {text}", verdict


def _by_tokens(line: Line, got: Stream) -> Iterator[_Compared]:
    """For an engine without full logprobs: its tokens, and their logprobs if it has them."""
    recorded = line.recorded
    for step, (token, want) in enumerate(zip(got.tokens, recorded.tokens, strict=False)):
        where = f"request {recorded.request.request_id!r}, step {step}"
        margin, noise = recorded.margins[step], recorded.noise[step]
        if token != want:
            if margin > 2 * numerics.FACTOR * noise:
                what = f"token {token} in place of {want} (margin {margin:.3g} nats)"
                yield Part.GOLDEN, f"{where}: {what}, noise {noise:.3g}", Verdict.DIVERGED
            return  # later steps have another history
        if got.token_logprobs is None:
            continue
        off = abs(
            float(got.token_logprobs[step] - line.shift[step]) - dict(recorded.top[step])[want]
        )
        if not off <= numerics.FACTOR * noise:
            what = f"token {token}: its logprob is {off:.3g} nats off, noise {noise:.3g}"
            yield Part.GOLDEN, f"{where}: {what}", Verdict.DRIFT
            return


def _verdict(found: Comparison, rows: np.ndarray) -> Verdict:
    if np.isnan(rows).any():
        return Verdict.NAN
    return Verdict.DRIFT if found.turned is None else Verdict.DIVERGED


def _deviation(rows: np.ndarray, line: Line) -> str:
    """How logprobs ``[steps, vocab]`` differ from the single stream; empty if within noise.

    The whole vocabulary is compared, although the golden keeps only the most likely tokens.
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
