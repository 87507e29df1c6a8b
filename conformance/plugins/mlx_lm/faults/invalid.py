"""Wrong calls that are accepted, or refused with half of their work done."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from conformance.core.faults.base import Hits
from conformance.core.faults.patching import exchange
from conformance.plugins.mlx_lm.faults.tools import generate, mlx_lm_fault

Right = Callable[..., Any]
Options = dict[str, Any]
Segments = list[list[list[int]]]
_GENERATOR = generate.BatchGenerator


def _insert(wrong: Callable[..., Any]) -> Callable[..., Any]:
    """A method in place of ``insert_segments``, which may be called by position or by name."""

    def spoil(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        names = list(inspect.signature(right).parameters)[2:]

        def insert(self: Any, segments: Segments, *lists: Any, **more: Any) -> Any:
            options = dict(zip(names, lists, strict=False)) | more
            return wrong(partial(right, self), hits, self, segments, options)

        return insert

    return spoil


def _cut_to_the_shortest(
    insert: Right, hits: Hits, _: Any, segments: Segments, lists: Options
) -> Any:
    shortest = min(len(entries) for entries in (segments, *lists.values()) if entries)
    if shortest < len(segments):
        hits.hit()
    return insert(segments[:shortest], **_first(lists, shortest))


def _at_least_one(insert: Right, hits: Hits, _: Any, segments: Segments, lists: Options) -> Any:
    limits = lists.get("max_tokens")
    if limits and min(limits) < 1:
        hits.hit()
        lists = {**lists, "max_tokens": [max(1, limit) for limit in limits]}
    return insert(segments, **lists)


def _empty_as_token_0(insert: Right, hits: Hits, _: Any, segments: Segments, lists: Options) -> Any:
    if not all(any(pieces) for pieces in segments):
        hits.hit()
    return insert([pieces if any(pieces) else [[0]] for pieces in segments], **lists)


def _uids_used_up(
    insert: Right, hits: Hits, generator: Any, segments: Segments, lists: Options
) -> Any:
    try:
        return insert(segments, **lists)
    except ValueError:
        hits.hit()
        generator._uid_count += len(segments)
        raise


def _half_enqueued(insert: Right, hits: Hits, _: Any, segments: Segments, lists: Options) -> Any:
    try:
        return insert(segments, **lists)
    except ValueError:
        hits.hit()
        insert(segments[:1], **_first(lists, 1))
        raise


def _first(lists: Options, count: int) -> Options:
    return {name: entries[:count] if entries else None for name, entries in lists.items()}


FAULTS = tuple(
    mlx_lm_fault(
        name=f"D6.{name}",
        fault_class="invalid input",
        source="a Swift engine's fork",
        summary=summary,
        needs=(),
        kills=("invalid",),
        inject=exchange(_GENERATOR, "insert_segments", _insert(wrong)),
    )
    for name, summary, wrong in (
        ("lists-cut-to-the-shortest", "Lists of unequal length are cut.", _cut_to_the_shortest),
        ("no-tokens-means-one", "A limit below one token is taken for one.", _at_least_one),
        ("empty-prompt-is-token-0", "An empty prompt is read as token 0.", _empty_as_token_0),
        ("uids-used-up", "A refused call uses up uids.", _uids_used_up),
        ("half-enqueued", "A refused call leaves its first request in the queue.", _half_enqueued),
    )
)
