"""Makes the picture of a failing case from its runs, without a verdict or a model call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from conformance.checks import Play
from conformance.checks.forced import measure
from conformance.core import numerics
from conformance.core.numerics import Deviation, Envelope
from conformance.core.phases import ForwardCall
from conformance.core.picture import MOST_ROWS, MOST_STEPS, Compared, Lane, Picture, packed
from conformance.core.schedule import Schedule
from conformance.core.trace import Mode, Stream, Trace
from conformance.core.verdict import Finding, Verdict

# Verdicts without a picture: right, refused by the library, or nothing reached.
_PLAIN = (Verdict.EXACT, Verdict.TIE, Verdict.UNSUPPORTED)

# Digits kept of a number: it is only drawn.
_DIGITS = 3


def picture_of(plays: Sequence[Play], findings: Sequence[Finding]) -> Picture | None:
    """The run with the worst finding, and the tokens of the request it names.

    ``None`` if nothing is wrong, or if no schedule gave a trace. Makes no model call: the checks
    have measured everything it needs.
    """
    worst = max(findings, key=lambda finding: finding.verdict.severity, default=None)
    if worst is None or worst.verdict in _PLAIN or not plays:
        return None
    play = next((p for p in plays if p.schedule.name == worst.schedule), None)
    if play is None:
        return None if worst.schedule else _picture(plays[0], worst, findings)
    return _picture(play, worst, findings)


def _picture(play: Play, worst: Finding, findings: Sequence[Finding]) -> Picture:
    trace = _of_mode(play.traces[:2], worst.mode) or play.traces[0]
    steps = trace.steps[:MOST_STEPS]
    requests = play.schedule.requests
    sizes = [step.cache_bytes for step in steps]
    return Picture(
        schedule=play.schedule.name,
        mode=trace.mode,
        steps=len(trace.steps),
        rows=len(requests),
        lanes=tuple(_lane(trace, request.request_id) for request in requests[:MOST_ROWS]),
        calls=tuple(_calls(step.forwards) for step in steps),
        cache_bytes=tuple(sizes) if any(size is not None for size in sizes) else (),
        probes=tuple((step.index, probe.kind) for step in steps for probe in step.probes),
        stopped=_stopped(trace),
        compared=_compared(play, _request(play, worst, findings)),
    )


def _of_mode(traces: Iterable[Trace], mode: str) -> Trace | None:
    return next((trace for trace in traces if trace.mode == mode), None)


def _lane(trace: Trace, name: str) -> Lane:
    steps = trace.steps[:MOST_STEPS]
    done = ((step.index, step.output.processed.get(name, 0)) for step in steps)
    return Lane(
        name,
        packed([step.stages.get(name) for step in steps]),
        tuple((index, count) for index, count in done if count),
    )


def _calls(calls: Iterable[ForwardCall]) -> str:
    return " ".join(f"{call.batch}x{call.length}" for call in calls)


def _stopped(trace: Trace) -> str:
    if trace.failure is not None:
        return f"{trace.failure.type_name} in {trace.failure.doing}"
    return "the step bound was reached" if trace.out_of_steps else ""


def _request(play: Play, worst: Finding, findings: Sequence[Finding]) -> str:
    """The request that the worst finding names, else the first one named for the schedule."""
    own = [finding for finding in findings if finding.schedule == play.schedule.name]
    named = [f.request_id for f in (worst, *own) if f.request_id is not None]
    known = {request.request_id for request in play.schedule.requests}
    first = play.schedule.requests[0].request_id
    return next((name for name in named if name in known), first)


def _compared(play: Play, name: str) -> Compared | None:
    """The engine's own tokens; numbers for the steps whose input was the oracle's tokens."""
    want = play.want[name]
    free = _of_mode(play.traces[:2], Mode.FREE) or play.traces[0]
    numbers = _of_mode(play.traces[:2], Mode.FORCED) or free
    got = free.stream(name).tokens
    if not got and not want.tokens:
        return None
    found = measure(play, numbers, name) or (None, None)
    # A cancelled request is expected to have no more tokens than it produced.
    limit = len(got) if name in play.schedule.removed_ids else len(want.tokens)
    return _numbers_of(name, want, got, found, limit=limit, mode=numbers.mode)


def picture_of_oracle(
    schedule: Schedule,
    name: str,
    want: Stream,
    got: Stream | None,
    found: tuple[Deviation, Envelope],
) -> Picture:
    """A single stream compared with the same request decoded in another way, without a run.

    Args:
        got: the tokens of the other way; ``None`` if it was fed the tokens of ``want``.
    """
    other = got.tokens if got is not None else want.tokens
    limit = min(len(want.tokens), len(found[0].difference))
    compared = _numbers_of(name, want, other[:limit], found, limit=limit)
    return Picture(schedule.name, "", 0, len(schedule.requests), (), compared=compared)


def _numbers_of(
    name: str,
    want: Stream,
    got: tuple[int, ...],
    found: tuple[Deviation, Envelope] | tuple[None, None],
    *,
    limit: int,
    mode: str = "",
) -> Compared:
    count = min(limit, len(want.tokens), MOST_STEPS)
    deviation, noise = found
    return Compared(
        name,
        expected=want.tokens[:count],
        got=got[:MOST_STEPS],
        mode=mode,
        difference=_rounded(deviation.difference[:MOST_STEPS]) if deviation is not None else (),
        noise=_rounded(noise.full[:count]) if noise is not None else (),
        margin=_rounded(numerics.margins(want.logprobs[:count]))
        if want.logprobs is not None and count
        else (),
        bad=deviation.first_bad_step if deviation is not None else None,
    )


def _rounded(values: np.ndarray) -> tuple[float | None, ...]:
    return tuple(float(f"{v:.{_DIGITS}g}") if np.isfinite(v) else None for v in values)
