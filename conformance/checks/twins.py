"""Equal requests that share all passes must get the same logprobs.

This needs neither the single stream nor its noise: rounding is the same for both rows, in every
dtype. It therefore detects row-dependent errors far below the noise of low precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import msgspec

from conformance.checks.forced import common_steps
from conformance.checks.play import Play
from conformance.core import numerics
from conformance.core.schedule import Arrival
from conformance.core.trace import Trace
from conformance.core.verdict import Finding, Verdict


def check_twins(play: Play) -> list[Finding]:
    """``drift`` if the logprobs of a row and its twin differ by more than the noise floor."""
    return [
        finding
        for trace in play.traces[:2]
        for arrival in play.schedule.arrivals
        for one, other in _pairs(arrival)
        if _together(trace, one, other)
        for finding in _apart(play, trace, one, other)
    ]


def _pairs(arrival: Arrival) -> Iterator[tuple[str, str]]:
    """The first of equal requests paired with each of the others; none for sampled requests."""
    plain = [r for r in arrival.requests if r.sampler is None]
    same = sorted(
        (msgspec.json.encode(msgspec.structs.replace(r, request_id="")), r.request_id)
        for r in plain
    )
    for _, group in groupby(same, key=lambda pair: pair[0]):
        first, *others = (name for _, name in group)
        yield from ((first, other) for other in others)


def _together(trace: Trace, one: str, other: str) -> bool:
    """Whether both were processed alike in every step, and in one pass as far as is known."""
    return trace.failure is None and all(
        step.stages.get(one) is step.stages.get(other)
        and step.output.processed.get(one) == step.output.processed.get(other)
        for step in trace.steps
    )


def _apart(play: Play, trace: Trace, one: str, other: str) -> Iterator[Finding]:
    mine, theirs = trace.stream(one), trace.stream(other)
    steps = common_steps(mine, theirs)
    if mine.logprobs is None or theirs.logprobs is None or not steps:
        return
    floor = play.floor(one)
    noise = numerics.flat_envelope(steps, floor.floor)
    found = numerics.deviation(theirs.logprobs[:steps], mine.logprobs[:steps], noise)
    if not found.ratio.max() > 1.0:
        return
    step = int((found.ratio > 1.0).argmax())
    difference = float(found.difference[step])
    yield Finding(
        Verdict.DRIFT,
        "twins",
        f"two equal requests in one batch are {difference:.3g} nats apart at output token {step}",
        schedule=play.schedule.name,
        mode=trace.mode,
        request_id=other,
        step=step,
        row=play.row(trace, other, step),
        expected=f"the logprobs of request {one!r}, in the same batch",
        got=f"{difference:.3g} nats apart",
        difference=difference,
        noise=floor.floor,
        ratio=float(found.ratio.max()),
        cause="data of one row, or the position of a row, affects another row's logprobs",
    )
