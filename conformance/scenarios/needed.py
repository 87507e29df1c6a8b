"""What a small schedule has in it, in words."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.core.schedule import Schedule, Stage
from conformance.scenarios.features import Feature, features_of

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
    have = features_of(schedule, window)
    yield from (text for feature, text in _NAMED.items() if feature in have)
