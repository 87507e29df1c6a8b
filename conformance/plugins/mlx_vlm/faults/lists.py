"""Faults of what is kept for each row of the decoding batch: tokens, logprobs, limits."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import mlx.core as mx

from conformance.core.faults.base import Hits, replaced
from conformance.plugins.mlx_vlm.faults.patching import (
    after,
    batch_class,
    fault,
    generator_class,
)

_CLASS = "list misalignment"
# What a batch holds of the token that it gives next.
_NEXT = ("_next_tokens", "_next_lps", "_next_top_idx", "_next_top_lp")


def _first_lost(hits: Hits) -> AbstractContextManager[None]:
    real = generator_class()._extend_generation_batch

    def join(self: Any, batch: Any) -> None:
        fresh = not self._generation_batch.uids
        real(self, batch)
        if fresh and hasattr(batch, "_step"):
            hits.hit()
            batch._step()

    return replaced(generator_class(), "_extend_generation_batch", join)


def _shifted_logprobs(hits: Hits) -> AbstractContextManager[None]:
    def shift(batch: Any, result: None, _: Any) -> None:
        for name in ("_next_lps", "_next_top_idx", "_next_top_lp"):
            if getattr(batch, name) is not None and len(batch.uids) > 1:
                hits.hit()
                setattr(batch, name, mx.roll(getattr(batch, name), 1, 0))
        return result

    return after(batch_class(), "extend", shift)


def _short_logprobs(hits: Hits) -> AbstractContextManager[None]:
    """A join takes over the tokens of the new rows and not their logprobs."""
    real = batch_class().extend

    def extend(self: Any, other: Any) -> None:
        kept = {name: getattr(self, name) for name in _NEXT[1:]}
        real(self, other)
        if kept["_next_lps"] is not None and len(other.uids):
            hits.hit()
            for name, value in kept.items():
                setattr(self, name, value)

    return replaced(batch_class(), "extend", extend)


@contextlib.contextmanager
def _stale_tokens(hits: Hits) -> Iterator[None]:
    """What an emptied batch would have said next is said by the first that join it."""
    real_filter, real_join = batch_class().filter, generator_class()._extend_generation_batch
    left: list[Any] = []

    def filtered(self: Any, keep: list[int]) -> None:
        tokens = self._next_tokens
        real_filter(self, keep)
        if not keep and tokens is not None:
            left[:] = [tokens]

    def join(self: Any, batch: Any) -> None:
        if not self._generation_batch.uids and left and hasattr(batch, "_next_tokens"):
            stale = left.pop()[: len(batch.uids)]
            if stale.tolist() != batch._next_tokens[: len(stale)].tolist():
                hits.hit()
            batch._next_tokens = mx.concatenate([stale, batch._next_tokens[len(stale) :]])
        real_join(self, batch)

    with (
        replaced(batch_class(), "filter", filtered),
        replaced(generator_class(), "_extend_generation_batch", join),
    ):
        yield


def _by_place(name: str, hits: Hits) -> AbstractContextManager[None]:
    """When rows leave, the first entries of a list are kept instead of theirs."""
    real = batch_class().filter

    def filtered(self: Any, keep: list[int]) -> None:
        values = list(getattr(self, name))
        real(self, keep)
        if keep and values:
            if getattr(self, name) != values[: len(keep)]:
                hits.hit()
            setattr(self, name, values[: len(keep)])

    return replaced(batch_class(), "filter", filtered)


def _limits_by_place(hits: Hits) -> AbstractContextManager[None]:
    return _by_place("max_tokens", hits)


def _counts_by_place(hits: Hits) -> AbstractContextManager[None]:
    return _by_place("_num_tokens", hits)


def _tokens_by_place(hits: Hits) -> AbstractContextManager[None]:
    real = batch_class().filter

    def filtered(self: Any, keep: list[int]) -> None:
        tokens = self._next_tokens
        real(self, keep)
        if keep and tokens is not None:
            if tokens[: len(keep)].tolist() != self._next_tokens.tolist():
                hits.hit()
            self._next_tokens = tokens[: len(keep)]

    return replaced(batch_class(), "filter", filtered)


def _limits_rolled(hits: Hits) -> AbstractContextManager[None]:
    def roll(batch: Any, result: None, _: Any) -> None:
        if len(set(batch.max_tokens)) > 1:
            hits.hit()
            batch.max_tokens = batch.max_tokens[1:] + batch.max_tokens[:1]
        return result

    return after(batch_class(), "extend", roll)


FAULTS = (
    fault(
        "B1.first-token-lost",
        "first token",
        "mlx-vlm #1030",
        "a warm-up step after prefill discards the first token of every sequence",
        _first_lost,
        kills="batch_of_one",
        where="input:tokens|output:*",
    ),
    fault(
        "B2.logprobs-of-another-row",
        _CLASS,
        "mlx-vlm #1030",
        "after a join each row is given its neighbour's logprobs",
        _shifted_logprobs,
        kills="staggered",
        where="output:logprobs",
    ),
    fault(
        "B2.logprobs-shorter-than-rows",
        _CLASS,
        "mlx-vlm #1030",
        "after a join the list of logprobs lacks the new rows",
        _short_logprobs,
        kills="staggered",
        where="crash:*",
        crash=True,
    ),
    fault(
        "B9.emptied-batch-speaks",
        "cancellation",
        "mlx-vlm #1030",
        "an emptied batch keeps its current tokens, and the next to join says them",
        _stale_tokens,
        kills="cancelled slot_reuse",
        where="input:tokens|output:*",
    ),
    fault(
        "F15.max-tokens-of-another-row",
        _CLASS,
        "issue trackers",
        "when rows leave, the first limits are kept instead of those of the rows that stay",
        _limits_by_place,
        kills="early_finish",
        where="input:tokens|output:*",
    ),
    fault(
        "F15.counts-of-another-row",
        _CLASS,
        "issue trackers",
        "when rows leave, the others go on with the counts of produced tokens of the first",
        _counts_by_place,
        kills="staggered",
        where="input:tokens|output:*",
    ),
    fault(
        "F15.max-tokens-rolled-by-a-join",
        _CLASS,
        "issue trackers",
        "a join leaves each row with its neighbour's limit",
        _limits_rolled,
        kills="staggered",
        where="input:tokens|output:*",
    ),
    fault(
        "F15.tokens-of-another-row",
        _CLASS,
        "issue trackers",
        "when rows leave, the first tokens are kept instead of those of the rows that stay",
        _tokens_by_place,
        kills="early_finish",
        where="input:tokens|output:*",
    ),
)
