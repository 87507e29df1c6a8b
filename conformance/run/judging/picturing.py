"""Makes the picture of a failing case out of its runs. Judges nothing, and asks no model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from conformance.checks import Play
from conformance.checks.forced import measure
from conformance.core import numerics
from conformance.core.numerics import Deviation, Envelope
from conformance.core.picture import MOST_ROWS, MOST_STEPS, Compared, Lane, Picture, packed
from conformance.core.schedule import Schedule
from conformance.core.trace import ForwardCall, Mode, Stream, Trace
from conformance.core.verdict import Finding, Verdict

# Verdicts with nothing to look at: right, refused in words, or never reached.
_PLAIN = (Verdict.EXACT, Verdict.TIE, Verdict.UNSUPPORTED)

# Digits of a number that are kept: it is drawn, not judged.
_DIGITS = 3


def picture_of(plays: Sequence[Play], findings: Sequence[Finding]) -> Picture | None:
    """The run in which the worst finding was seen, and the tokens of the request it names.

    ``None`` where nothing is wrong, or where no schedule was played to a trace. Costs no model
    call: the checks have measured what it asks for.
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
    told = [step.cache_bytes for step in steps]
    return Picture(
        schedule=play.schedule.name,
        mode=trace.mode,
        steps=len(trace.steps),
        rows=len(requests),
        lanes=tuple(_lane(trace, request.request_id) for request in requests[:MOST_ROWS]),
        calls=tuple(_calls(step.forwards) for step in steps),
        cache_bytes=tuple(told) if any(size is not None for size in told) else (),
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
    """The request that the worst finding names, else the first that one of the schedule names."""
    own = [finding for finding in findings if finding.schedule == play.schedule.name]
    named = [f.request_id for f in (worst, *own) if f.request_id is not None]
    known = {request.request_id for request in play.schedule.requests}
    first = play.schedule.requests[0].request_id
    return next((name for name in named if name in known), first)


def _compared(play: Play, name: str) -> Compared | None:
    """Tokens as the engine chose them; numbers as far as a run was fed the oracle's tokens."""
    want = play.want[name]
    free = _of_mode(play.traces[:2], Mode.FREE) or play.traces[0]
    numbers = _of_mode(play.traces[:2], Mode.FORCED) or free
    got = free.stream(name).tokens
    if not got and not want.tokens:
        return None
    found = measure(play, numbers, name) or (None, None)
    # Of a request that was cancelled, no more is expected than came out.
    asked = len(got) if name in play.schedule.removed_ids else len(want.tokens)
    return _numbers_of(name, want, got, found, asked=asked, mode=numbers.mode)


def picture_alone(
    schedule: Schedule,
    name: str,
    want: Stream,
    got: Stream | None,
    found: tuple[Deviation, Envelope],
) -> Picture:
    """A single stream beside the same made in another way, which has no run to draw.

    Args:
        got: the other way's tokens; ``None`` where it is fed those of ``want``.
    """
    other = got.tokens if got is not None else want.tokens
    asked = min(len(want.tokens), len(found[0].difference))
    compared = _numbers_of(name, want, other[:asked], found, asked=asked)
    return Picture(schedule.name, "", 0, len(schedule.requests), (), compared=compared)


def _numbers_of(
    name: str,
    want: Stream,
    got: tuple[int, ...],
    found: tuple[Deviation, Envelope] | tuple[None, None],
    *,
    asked: int,
    mode: str = "",
) -> Compared:
    count = min(asked, len(want.tokens), MOST_STEPS)
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
