"""Which capabilities of an engine a run of a schedule used.

Only capabilities that an engine can lack are here; capabilities of servers have their own
scenarios, which exist for nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from conformance.core.engine import Capability
from conformance.core.schedule import Request, Schedule, Stage
from conformance.core.trace import Mode, Trace
from conformance.scenarios import stop_tokens

_REPORTED = {Stage.PREFILL, Stage.DECODE}


def _pieces(trace: Trace) -> bool:
    """Whether a prompt took more steps than one piece and the step of its last token."""
    counts = Counter(n for step in trace.steps for n, done in step.output.processed.items() if done)
    return max(counts.values(), default=0) > 2


def _any(of_request: Callable[[Request], object]) -> Callable[[Trace], bool]:
    return lambda trace: any(map(of_request, trace.schedule.requests))


def _asked(of_schedule: Callable[[Schedule], object]) -> Callable[[Trace], bool]:
    return lambda trace: bool(of_schedule(trace.schedule))


_STOPS = _any(lambda request: request.stop)

USES: dict[Capability, Callable[[Trace], bool]] = {
    Capability.FORCED: lambda trace: trace.mode is Mode.FORCED,
    Capability.LOGPROBS: lambda trace: any(
        event.logprobs is not None for step in trace.steps for event in step.output.events
    ),
    Capability.STAGES: lambda trace: any(
        stage in _REPORTED for step in trace.steps for stage in step.stages.values()
    ),
    Capability.TOGETHER: lambda trace: any(c.length > 1 and c.batch > 1 for c in trace.computed),
    Capability.CHUNKED: _pieces,
    Capability.LATE_JOIN: lambda trace: len(trace.schedule.arrivals) > 1 and not trace.missed,
    Capability.SLOTS: _asked(lambda s: len(s.requests) > s.options.completion_batch_size),
    Capability.CANCEL: lambda trace: any(step.removed_from for step in trace.steps),
    Capability.SAMPLERS: _any(lambda request: request.sampler),
    Capability.PROCESSORS: _any(lambda request: request.processors),
    Capability.BUDGETS: _any(lambda request: request.budget),
    Capability.DEFAULTS: _asked(
        lambda s: s.options.sampler or s.options.processors or s.options.stop
    ),
    Capability.STOP: lambda t: _STOPS(t) and t.schedule.name != stop_tokens.NAME,
    Capability.STOP_TOKENS: lambda t: _STOPS(t) and t.schedule.name == stop_tokens.NAME,
    Capability.SEGMENTS: _any(lambda request: request.segments),
    Capability.PREFIX: _any(lambda request: request.continues),
    Capability.SAVED: _any(lambda request: request.continues and request.continues.saved),
    Capability.MEDIA: _any(lambda request: request.media),
    Capability.QUANTIZED: _asked(lambda schedule: schedule.options.kv),
    Capability.SPECULATIVE: _asked(lambda schedule: schedule.options.drafting),
    Capability.PREFIX_CACHING: _asked(lambda schedule: schedule.options.prefix_caching),
    Capability.WEIGHED: lambda trace: trace.kept is not None,
    Capability.PROBES: lambda trace: any(step.probes for step in trace.steps),
    Capability.THREADS: _asked(lambda schedule: schedule.decode_on_other_thread),
}


def exercised(trace: Trace) -> Iterator[Capability]:
    """The capabilities that a run used; none if it ended with an exception."""
    if trace.failure is None and trace.steps:
        yield from (capability for capability, used in USES.items() if used(trace))
