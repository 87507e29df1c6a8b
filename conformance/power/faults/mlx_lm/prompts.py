"""Prompts: wrong calls that are accepted or half done, and boundaries of prefill pieces."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, wrap
from conformance.power.faults.mlx_lm.tools import generate, mlx_lm_fault

# For each request the pieces of its prompt, and further lists with an entry for each.
Segments = list[list[list[int]]]
Lists = dict[str, Any]
_invalid = partial(
    mlx_lm_fault, fault_class="invalid input", source="a Swift engine's fork", kills=("invalid",)
)


def _inserted_by(wrong: Callable[[Right, Any, Segments, Lists], Any]) -> Patch:
    """``wrong(right, generator, segments, lists)``, with the lists by their names.

    The library's method takes them by position or by name.
    """

    def insert(right: Right, self: Any, segments: Segments, *lists: Any, **more: Any) -> Any:
        names = list(inspect.signature(right).parameters)[2:]
        named = dict(zip(names, lists, strict=False)) | more
        return wrong(partial(right, self), self, segments, named)

    return wrap(generate.BatchGenerator, "insert_segments", insert)


def _first(lists: Lists, count: int) -> Lists:
    return {name: entries[:count] if entries else None for name, entries in lists.items()}


@_invalid("D6.lists-cut-to-the-shortest")
def lists_cut_to_the_shortest(hits: Hits) -> Patch:
    """Lists of unequal length are cut."""

    def cut(insert: Right, _: Any, segments: Segments, lists: Lists) -> Any:
        shortest = min(len(entries) for entries in (segments, *lists.values()) if entries)
        hits.hit_if(shortest < len(segments))
        return insert(segments[:shortest], **_first(lists, shortest))

    return _inserted_by(cut)


@_invalid("D6.no-tokens-means-one")
def no_tokens_means_one(hits: Hits) -> Patch:
    """A limit below one token is taken for one."""

    def at_least_one(insert: Right, _: Any, segments: Segments, lists: Lists) -> Any:
        limits = lists.get("max_tokens")
        if limits and min(limits) < 1:
            hits.hit()
            lists = {**lists, "max_tokens": [max(1, limit) for limit in limits]}
        return insert(segments, **lists)

    return _inserted_by(at_least_one)


@_invalid("D6.empty-prompt-is-token-0")
def empty_prompt_is_token_0(hits: Hits) -> Patch:
    """An empty prompt is read as token 0."""

    def filled(insert: Right, _: Any, segments: Segments, lists: Lists) -> Any:
        hits.hit_if(not all(any(pieces) for pieces in segments))
        return insert([pieces if any(pieces) else [[0]] for pieces in segments], **lists)

    return _inserted_by(filled)


@_invalid("D6.half-enqueued")
def half_enqueued(hits: Hits) -> Patch:
    """A refused call leaves its first request in the queue."""

    def enqueue(insert: Right, _: Any, segments: Segments, lists: Lists) -> Any:
        try:
            return insert(segments, **lists)
        except ValueError:
            hits.hit()
            insert(segments[:1], **_first(lists, 1))
            raise

    return _inserted_by(enqueue)


Tokens = list[int]
_chunk = partial(
    mlx_lm_fault,
    fault_class="chunk",
    source="issue trackers: prefill in pieces",
    kills=("chunked", "prompt_cache"),
    where="input:tokens",
)


def _at_boundaries(change: Callable[[Tokens, Tokens], Tokens], hits: Hits) -> Patch:
    """``change`` gets what of a prompt is in the cache, and its next piece."""

    def prompt(right: Right, self: Any, tokens: list[Tokens]) -> None:
        pairs = zip(self.tokens, tokens, strict=True)
        wrong = [change(seen, piece) if seen else piece for seen, piece in pairs]
        hits.hit_if(wrong != tokens)
        right(self, wrong)

    return wrap(generate.PromptProcessingBatch, "prompt", prompt)


@_chunk("F13.token-counted-twice")
def token_counted_twice(hits: Hits) -> Patch:
    """Each piece of a prompt begins with the last token of the one before."""
    return _at_boundaries(lambda seen, piece: [*seen[-1:], *piece], hits)


@_chunk("F13.token-left-out")
def token_left_out(hits: Hits) -> Patch:
    """Each piece of a prompt but the first lacks its first token."""
    return _at_boundaries(lambda _, piece: piece[1:] or piece, hits)


@mlx_lm_fault(
    "F3.orders-taken-for-one",
    fault_class="prefix reuse",
    source="a review: near twins",
    kills=("traffic", "marathon/many"),
    where="input:tokens",
)
def orders_taken_for_one(hits: Hits) -> Patch:
    """Prompts of one call that have the same tokens in another order are taken for one."""

    def alike(insert: Right, _: Any, segments: Segments, lists: Lists) -> Any:
        first: dict[tuple[int, ...], list[list[int]]] = {}
        taken = []
        for pieces in segments:
            one = first.setdefault(tuple(sorted(chain(*pieces))), pieces)
            hits.hit_if(one != pieces)
            taken.append(one)
        return insert(taken, **lists)

    return _inserted_by(alike)
