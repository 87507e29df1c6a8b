"""Reports what nothing proved: capabilities never used, and methods without their capability."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from conformance.core.engine import Capability, Engine, equipped
from conformance.core.family import Family
from conformance.core.schedule import Request, Schedule, Stage
from conformance.core.trace import Mode, Trace
from conformance.core.verdict import CaseResult
from conformance.run.registry import Registry
from conformance.run.selection import Selection
from conformance.scenarios import stop_tokens

_OF_METHODS = {
    "extract": Capability.PREFIX,
    "reloaded": Capability.SAVED,
    "probe": Capability.PROBES,
    "give_up": Capability.WEIGHED,
    "give_up_stored": Capability.STORED,
}
"""The capability without which nothing calls a method."""


def undeclared(engine: type[Engine]) -> tuple[str, ...]:
    """A sentence about methods that the engine's own class has, and declares no capability for."""
    found = {
        name: capability
        for name, capability in _OF_METHODS.items()
        if name in vars(engine) and capability not in engine.capabilities
    }
    if not found:
        return ()
    methods = ", ".join(f"{name}()" for name in found)
    names = ", ".join(dict.fromkeys(found.values()))
    return (f"{engine.name} has {methods} and does not declare {names}: nothing calls that",)


def unexercised(
    registry: Registry, selection: Selection, results: Sequence[CaseResult]
) -> tuple[str, ...]:
    """A sentence for each engine with unused capabilities or methods, which remain unproven.

    None if single scenarios were selected, and none for a server, whose scenarios each need what
    they use. An engine without a completed run is reported by its verdicts.
    """
    if selection.scenarios:
        return ()
    found: list[str] = []
    for name in dict.fromkeys(result.engine for result in results):
        engine, own = registry.engines[name], [r for r in results if r.engine == name]
        used = {capability for result in own for capability in result.exercised}
        if not used or Capability.SERVED in engine.capabilities:
            continue
        families = [
            family
            for family in registry.families_of(engine)
            if family.name in {result.family for result in own}
        ]
        left = sorted((engine.capabilities & USES.keys()) - used - _useless(engine, families))
        found += undeclared(engine)
        if left:
            more = selection.tier.leaves_out(engine.library)
            found.append(
                f"{name}: unproven, as no schedule used it: {', '.join(left)}"
                f"{' (--tier full plays more)' if more else ''}"
            )
    return tuple(found)


def _useless(engine: type[Engine], families: Sequence[Family]) -> set[Capability]:
    """The capabilities that none of the families in the run can use."""
    media = any(set(family.facts.modalities) - {"text"} for family in families)
    drafts = any(equipped(family, engine).facts.drafters for family in families)
    useful = {Capability.MEDIA: media, Capability.SPECULATIVE: drafts}
    return {capability for capability, there in useful.items() if not there}


# Only capabilities that an engine can lack: those of servers have their own scenarios, which exist
# for nothing else.
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
