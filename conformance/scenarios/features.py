"""The features of schedules, in words, and what each requires of an engine and a family."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Request, Schedule, Stage
from conformance.scenarios.scenario import Brief

GRAMMAR = "grammar"
"""The kind of processor of the feature ``GRAMMAR``."""


class Feature(enum.StrEnum):
    """A feature. Each schedule has a random subset of them (swarm testing)."""

    ARRIVALS = "arrivals"  # requests that arrive while others are processed
    REMOVALS = "removals"  # cancelled in the queue, in prefill, in decode
    PIECES = "pieces"  # prefill in pieces
    SLOTS = "slots"  # fewer rows than requests
    SAMPLERS = "samplers"
    PROCESSORS = "processors"  # penalties
    STOP = "stop"
    GRAMMAR = "grammar"
    SEGMENTS = "segments"  # prompts in given pieces
    CONTINUES = "continues"  # continuing from an extracted cache
    CACHING = "caching"  # equal prefixes computed once
    MEDIA = "media"
    QUANTIZED = "quantized"
    DRAFTS = "drafts"
    BOUNDED = "bounded"  # caches of bounded size
    LONG = "long"  # prompts and outputs past a window
    THREAD = "thread"  # another thread than the loader's


NEEDS: dict[Feature, frozenset[Capability]] = {
    Feature.ARRIVALS: frozenset({Capability.LATE_JOIN}),
    Feature.REMOVALS: frozenset({Capability.CANCEL}),
    Feature.PIECES: frozenset({Capability.CHUNKED}),
    Feature.SLOTS: frozenset({Capability.SLOTS}),
    Feature.SAMPLERS: frozenset({Capability.SAMPLERS}),
    Feature.PROCESSORS: frozenset({Capability.PROCESSORS}),
    Feature.STOP: frozenset({Capability.STOP}),
    Feature.GRAMMAR: frozenset({Capability.PROCESSORS}),
    Feature.SEGMENTS: frozenset({Capability.SEGMENTS, Capability.CHUNKED}),
    Feature.CONTINUES: frozenset({Capability.PREFIX, Capability.LATE_JOIN}),
    Feature.CACHING: frozenset(
        {Capability.PREFIX_CACHING, Capability.LATE_JOIN, Capability.CHUNKED}
    ),
    Feature.MEDIA: frozenset({Capability.MEDIA}),
    Feature.QUANTIZED: frozenset({Capability.QUANTIZED, Capability.CHUNKED}),
    Feature.DRAFTS: frozenset({Capability.SPECULATIVE, Capability.SLOTS}),
    Feature.BOUNDED: frozenset(),
    Feature.LONG: frozenset(),
    Feature.THREAD: frozenset({Capability.THREADS}),
}

# Combinations that no rung of the ladder has either: engines refuse them, or random tokens or a
# bound below a prompt's length are not comparable there.
_APART = (
    (Feature.CACHING, Feature.CONTINUES),
    (Feature.CACHING, Feature.QUANTIZED),
    (Feature.CACHING, Feature.DRAFTS),
    (Feature.CACHING, Feature.BOUNDED),
    (Feature.DRAFTS, Feature.SAMPLERS),
    (Feature.DRAFTS, Feature.PROCESSORS),
    (Feature.DRAFTS, Feature.GRAMMAR),
    (Feature.DRAFTS, Feature.STOP),
    (Feature.DRAFTS, Feature.QUANTIZED),
    (Feature.DRAFTS, Feature.CONTINUES),
    (Feature.DRAFTS, Feature.BOUNDED),
    (Feature.QUANTIZED, Feature.CONTINUES),
    (Feature.QUANTIZED, Feature.BOUNDED),
    (Feature.PROCESSORS, Feature.GRAMMAR),
    # The single stream of a prompt in segments passes only the last one to its processors.
    (Feature.SEGMENTS, Feature.PROCESSORS),
    (Feature.SEGMENTS, Feature.GRAMMAR),
    # How a penalty or a grammar treats the tokens of an inserted cache is not specified.
    (Feature.CONTINUES, Feature.PROCESSORS),
    (Feature.CONTINUES, Feature.GRAMMAR),
)


def able(brief: Brief) -> tuple[Feature, ...]:
    """The features that the engine supports and that apply to the family."""
    found = [feature for feature, needs in NEEDS.items() if needs <= brief.capabilities]
    useless = {
        Feature.MEDIA: set(brief.modalities) <= {"text"},
        Feature.DRAFTS: not brief.drafters,
        Feature.BOUNDED: not brief.bounded or bool(brief.window),
        Feature.LONG: not brief.window or brief.window > LONGEST,
        # Each prompt has its own medium, so that none share a prefix.
        Feature.CACHING: bool(brief.required),
    }
    return tuple(feature for feature in found if not useless.get(feature))


LONGEST = 32
"""The longest window, in tokens, that a schedule exceeds; longer ones would cost too much."""


def together(features: Iterable[Feature], *, uncut: bool = False) -> frozenset[Feature]:
    """``features`` without those that earlier ones exclude.

    Args:
        uncut: prompts with media are prefilled whole.
    """
    apart = [*_APART, (Feature.MEDIA, Feature.PIECES)] if uncut else _APART
    kept: list[Feature] = []
    for feature in features:
        if not any({feature, other} == set(pair) for other in kept for pair in apart):
            kept.append(feature)
    return frozenset(kept)


def features_of(schedule: Schedule, window: int | None = None) -> frozenset[Feature]:
    """The features that a schedule actually has; ``window`` is the model's."""
    found = {feature for request in schedule.requests for feature in _of_request(request)}
    if len(schedule.arrivals) > 1:
        found.add(Feature.ARRIVALS)
    if window and any(len(r.prompt) + r.max_tokens > window for r in schedule.requests):
        found.add(Feature.LONG)
    if schedule.removals:
        found.add(Feature.REMOVALS)
    if schedule.decode_on_other_thread:
        found.add(Feature.THREAD)
    return frozenset(found | set(_of_options(schedule.options, len(schedule.requests))))


def _of_request(request: Request) -> Iterator[Feature]:
    kinds = {processor.kind for processor in request.processors}
    has = {
        Feature.SAMPLERS: request.sampler is not None,
        Feature.PROCESSORS: bool(kinds - {GRAMMAR}),
        Feature.GRAMMAR: GRAMMAR in kinds,
        Feature.STOP: bool(request.stop),
        Feature.SEGMENTS: bool(request.segments),
        Feature.CONTINUES: request.continues is not None,
        Feature.MEDIA: bool(request.media),
    }
    return (feature for feature, there in has.items() if there)


def _of_options(options: EngineOptions, requests: int) -> Iterator[Feature]:
    slots = min(options.completion_batch_size, options.prefill_batch_size)
    has = {
        Feature.PIECES: options.prefill_step_size < EngineOptions().prefill_step_size,
        Feature.SLOTS: slots < requests,
        Feature.CACHING: options.prefix_caching is not None,
        Feature.QUANTIZED: options.kv is not None,
        Feature.DRAFTS: options.drafting is not None,
        Feature.BOUNDED: options.max_kv_size is not None,
    }
    return (feature for feature, there in has.items() if there)


# In which words a feature is named; the others are named by events, lengths and numbers.
_NAMED = {
    Feature.PIECES: "prefill in pieces",
    Feature.SLOTS: "more requests than slots",
    Feature.SAMPLERS: "samplers",
    Feature.PROCESSORS: "logits processors",
    Feature.STOP: "stop sequences",
    Feature.GRAMMAR: "a grammar",
    Feature.SEGMENTS: "prompts in segments",
    Feature.CONTINUES: "a continued cache",
    Feature.CACHING: "kept prefixes",
    Feature.MEDIA: "media",
    Feature.QUANTIZED: "quantized caches",
    Feature.DRAFTS: "drafts",
    Feature.BOUNDED: "bounded caches",
    Feature.LONG: "more tokens than the window",
    Feature.THREAD: "another thread",
}
_JOINS = {
    Stage.DECODE: "a join while another decodes",
    Stage.PREFILL: "a join while another is in prefill",
    Stage.QUEUED: "an arrival while another waits",
    Stage.FINISHED: "an arrival after another's end",
    Stage.REMOVED: "an arrival after a removal",
}
_LONG, _SEVERAL = 64, 8  # tokens


def needed(schedule: Schedule, window: int | None = None) -> Iterator[str]:
    """What is left in a schedule that was made small, in words."""
    requests = schedule.requests
    yield f"{len(requests)} requests" if len(requests) > 1 else "1 request"
    if len({len(request.prompt) for request in requests}) > 1:
        yield "prompts of other lengths"
    if (longest := max(len(request.prompt) for request in requests)) > _LONG:
        yield f"a prompt of {longest} tokens"
    if (most := max(request.max_tokens for request in requests)) > _SEVERAL:
        yield f"{most} output tokens"
    later = (arrival.when for arrival in schedule.arrivals[1:])
    yield from dict.fromkeys(_JOINS[when.stage] for when in later)
    yield from dict.fromkeys(f"a removal in {r.when.stage}" for r in schedule.removals)
    if any(request.budget for request in requests):
        yield "thinking budgets"
    if schedule.beside_models:
        yield "other models in the process"
    have = features_of(schedule, window)
    yield from (text for feature, text in _NAMED.items() if feature in have)
