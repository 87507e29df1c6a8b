"""An engine's statistics must match its work: prompt tokens, output tokens, times, memory."""

from __future__ import annotations

import math
from collections.abc import Iterator

from conformance.checks.play import Play
from conformance.core.counted import Counted, Pace
from conformance.core.trace import Trace
from conformance.core.verdict import Finding, Verdict

# Rates are compared as floats; one clock is read a little later than another.
_RELATIVE, _CLOCK = 1e-6, 1e-3
# More than any machine has, in GB.
_MOST_MEMORY = 1e5


def check_statistics(play: Play) -> list[Finding]:
    """``protocol`` for each count, time or rate that differs from the run.

    A removed request may be counted as a whole or as far as it was processed; a request with media
    may be counted by the positions that the model's towers make. Accepted invalid calls are
    counted, too: ``probe`` checks them. An engine that is made again starts its counts again.
    """
    findings: list[Finding] = []
    caching = play.schedule.options.prefix_caching
    if play.schedule.probes or (caching is not None and caching.restarts):
        return findings
    for trace in play.traces[:2]:
        if trace.counted is None or trace.failure is not None or trace.out_of_steps:
            continue
        findings += [
            Finding(
                Verdict.PROTOCOL,
                "statistics",
                f"the engine counts {what}: {got}, where {expected} are right",
                schedule=play.schedule.name,
                mode=trace.mode,
                request_id=name,
                expected=expected,
                got=got,
            )
            for name, what, got, expected in _wrong(trace, trace.counted)
        ]
    return findings


# A request's name or "", the count's name, the engine's value, the right value.
_Wrong = tuple[str, str, str, str]


def _wrong(trace: Trace, said: Counted) -> Iterator[_Wrong]:
    done = sum(sum(step.output.processed.values()) for step in trace.steps)
    if said.last_left_out:
        done -= len(_started(trace))
    least, most = _bounds_of_removed(trace)
    if any(request.media for request in trace.schedule.requests):
        most = max(most, said.prompts.tokens - done)
    if not done - least <= said.prompts.tokens <= done + most:
        yield "", "prompt tokens", f"{said.prompts.tokens}", f"{done}"
    events = sum(len(step.output.events) for step in trace.steps)
    if said.outputs.tokens != events:
        yield "", "output tokens", f"{said.outputs.tokens}", f"{events}"
    decoded = sum(bool(step.output.events) for step in trace.steps)
    if said.steps not in (None, decoded):
        yield "", "steps of decoding", f"{said.steps}", f"{decoded}"
    yield from _times("", "prefill", said.prompts, said.wall, busy=bool(done))
    yield from _times("", "decoding", said.outputs, said.wall, busy=bool(events))
    both = (said.prompts.seconds or 0.0) + (said.outputs.seconds or 0.0)
    if both > said.wall + _CLOCK:
        right = f"at most {said.wall:.4g}"
        yield "", "seconds of prefill and decoding", f"{both:.4g}", right
    if not 0 < said.peak < _MOST_MEMORY:
        right = f"more than 0 and less than {_MOST_MEMORY:g}"
        yield "", "GB of memory at the peak", f"{said.peak}", right
    yield from _reports(trace, said)


def _reports(trace: Trace, said: Counted) -> Iterator[_Wrong]:
    """There is one report for each request whose prefill ended."""
    if said.ended is None:
        return
    names = [report.request_id for report in said.ended]
    for name in sorted(n for n in _started(trace) if names.count(n) != 1):
        yield name, "reports of its prefill's end", f"{names.count(name)}", "1"
    requests = {request.request_id: request for request in trace.schedule.requests}
    reused = {name: count for step in trace.steps for name, count in step.output.reused.items()}
    for report in said.ended:
        name = report.request_id
        request = requests.get(name)
        right = len(request.prompt) if request else 0
        more = report.prompt.tokens - right
        if more and not (more > 0 and request and request.media):
            yield name, "tokens of its prompt", f"{report.prompt.tokens}", f"{right}"
        if report.reused != reused.get(name, 0):
            yield name, "reused tokens", f"{report.reused}", f"{reused.get(name, 0)}"
        yield from _times(name, "its prefill", report.prompt, said.wall, busy=True)


def _times(name: str, what: str, pace: Pace, wall: float, *, busy: bool) -> Iterator[_Wrong]:
    """A time is at most the total, and zero only without work; a rate is tokens by time."""
    if pace.seconds is None:
        return
    enough = pace.seconds > 0 if busy else pace.seconds >= 0
    if not enough or pace.seconds > wall + _CLOCK:
        right = f"{'more' if busy else 'not less'} than 0 and at most {wall:.4g}"
        yield name, f"seconds of {what}", f"{pace.seconds:.4g}", right
    right_rate = pace.tokens / pace.seconds if pace.seconds else 0.0
    if pace.rate is not None and not math.isclose(pace.rate, right_rate, rel_tol=_RELATIVE):
        yield name, f"tokens per second of {what}", f"{pace.rate:.6g}", f"{right_rate:.6g}"


def _started(trace: Trace) -> set[str]:
    """The requests that produced a token."""
    return {event.request_id for step in trace.steps for event in step.output.events}


def _bounds_of_removed(trace: Trace) -> tuple[int, int]:
    """How many prompt tokens of removed requests may be uncounted, or counted in advance."""
    removed = {name for step in trace.steps for name in step.removed_from}
    requests = [r for r in trace.schedule.requests if r.request_id in removed]
    return len(requests), sum(len(request.prompt) for request in requests)
