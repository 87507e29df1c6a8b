"""Faults of the prefix cache's blocks: what is kept under which key, and what comes back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import mlx.core as mx

from conformance.core.faults.base import Hits, replaced
from conformance.plugins.mlx_vlm.faults.patching import after, fault, part

_CLASS = "prefix cache"
_KILLS = "prefix_caching"
# Rows of unequal prefixes in one prefill, of which each goes on to speak.
_UNEQUAL = "prefix_caching/beside_cold"
# Two prompts are prefilled together, and what is stored of both is used again.
_STORED_TOGETHER = "prefix_caching/late"
# A prompt has another one's blocks in another order.
_SWAPPED = "prefix_caching/in_turn"
_PLAIN = ("cache:KVCache",)
# Caches of several kinds are kept whole, as snapshots.
_BLOCKS = ("only:KVCache",)


def _manager() -> Any:
    return part("apc").APCManager


def _truncated_key(hits: Hits) -> AbstractContextManager[None]:
    owner = part("apc")

    def of_block(parent: int, tokens: Any, extra: int) -> int:
        if parent != owner.SEED_PARENT_HASH:
            hits.hit()
        return hash((tokens, extra))

    return replaced(owner, "_hash_tokens", of_block)


def _stored(
    change: Callable[[Any, list[Any]], list[Any]], hits: Hits
) -> AbstractContextManager[None]:
    """Blocks are made of ``change(tokens, layers)`` in place of the layers' keys and values."""
    real = _manager().store_kv_blocks

    def store(self: Any, token_ids: Any, keys: Any, values: Any, **options: Any) -> Any:
        hits.hit()
        return real(self, token_ids, change(token_ids, keys), change(token_ids, values), **options)

    return replaced(_manager(), "store_kv_blocks", store)


def _off_by_one(hits: Hits) -> AbstractContextManager[None]:
    return _stored(lambda _, layers: [mx.roll(layer, -1, 2) for layer in layers], hits)


def _prefix_lengths(by: int, hits: Hits) -> AbstractContextManager[None]:
    """What comes back is said to be ``by`` tokens longer than it is."""

    def longer(_: Any, plan: Any, __: Any) -> Any:
        if plan is not None and 0 < plan["prefix_len"] + by < len(plan["full_input_ids"]):
            hits.hit()
            plan["prefix_len"] += by
        return plan

    return after(part("apc_coordinator").APCCoordinator, "lookup", longer)


def _restored(change: Callable[[Any, list[int]], None], hits: Hits) -> AbstractContextManager[None]:
    """``change(cache, left_padding)`` on each cache that is made of blocks for several rows."""
    owner = part("apc")
    real = owner._fill_batch_layer_cache

    def fill(keys: Any, values: Any, left_padding: Any, offset: Any, **options: Any) -> Any:
        made = real(keys, values, left_padding, offset, **options)
        if any(left_padding):
            hits.hit()
            change(made, list(left_padding))
        return made

    return replaced(owner, "_fill_batch_layer_cache", fill)


def _wrong_offset(hits: Hits) -> AbstractContextManager[None]:
    def of_longest(cache: Any, left_padding: list[int]) -> None:
        cache.offset = cache.offset + mx.array(left_padding)

    return _restored(of_longest, hits)


def _padding_seen(hits: Hits) -> AbstractContextManager[None]:
    def none(cache: Any, left_padding: list[int]) -> None:
        cache.left_padding = mx.zeros_like(mx.array(left_padding))

    return _restored(none, hits)


def _harvested(row: Callable[[int], int], hits: Hits) -> AbstractContextManager[None]:
    """Of a batch of ``n`` prompts row ``row(n)``'s keys are stored under each row's prompt."""
    owner = part("apc")
    real = owner.harvest_blocks_from_batch_cache

    def harvest(manager: Any, caches: Any, tokens: Any, **options: Any) -> Any:
        rows = getattr(caches[0], "batch_size", 1) if caches else 1
        at = row(rows)
        if rows > 1 and options.get("batch_idx") != at:
            hits.hit()
            least = min(len(tokens), int(caches[0].offset[at].item()))
            return real(manager, caches, tokens[:least], **{**options, "batch_idx": at})
        return real(manager, caches, tokens, **options)

    return replaced(owner, "harvest_blocks_from_batch_cache", harvest)


def _row_0_stored(hits: Hits) -> AbstractContextManager[None]:
    return _harvested(lambda _: 0, hits)


def _last_row_stored(hits: Hits) -> AbstractContextManager[None]:
    return _harvested(lambda rows: rows - 1, hits)


@contextlib.contextmanager
def _released_twice(hits: Hits) -> Iterator[None]:
    """A block that another request still holds is taken for free."""
    real = _manager().release

    def release(self: Any, blocks: Any) -> None:
        held = list(blocks)
        real(self, held)
        shared = [block for block in held if block.ref_cnt > 0]
        if shared:
            hits.hit()
            real(self, shared)

    with replaced(_manager(), "release", release):
        yield


def _one_less(hits: Hits) -> AbstractContextManager[None]:
    return _prefix_lengths(-1, hits)


FAULTS = (
    fault(
        "F3.key-without-what-came-before",
        _CLASS,
        "issue trackers",
        "a block is kept under a key of its own tokens alone",
        _truncated_key,
        kills=_SWAPPED,
        where="cache:*",
        needs=_BLOCKS,
    ),
    fault(
        "F5.hit-off-by-one",
        _CLASS,
        "issue trackers",
        "blocks hold the keys of the tokens one place further",
        _off_by_one,
        kills=_KILLS,
        where="cache:*",
        needs=_BLOCKS,
    ),
    fault(
        "F5.hit-one-token-too-short",
        _CLASS,
        "issue trackers",
        "the last token of what comes back is computed again",
        _one_less,
        kills=_KILLS,
        where="cache:*",
        needs=_PLAIN,
    ),
    fault(
        "D9.restored-row-at-wrong-offset",
        _CLASS,
        "a Swift engine's fork",
        "restored rows of a batch begin at the offset of the longest",
        _wrong_offset,
        kills=_UNEQUAL,
        where="cache:*",
        needs=_BLOCKS,
    ),
    fault(
        "D9.padding-of-restored-row-seen",
        _CLASS,
        "a Swift engine's fork",
        "the zeros before a shorter restored row are attended to",
        _padding_seen,
        kills=_UNEQUAL,
        where="cache:*",
        needs=_BLOCKS,
    ),
    fault(
        "F3.keys-of-row-0-stored",
        _CLASS,
        "issue trackers",
        "of a batch in prefill the first row's keys are stored under each row's prompt",
        _row_0_stored,
        kills=_STORED_TOGETHER,
        where="cache:*",
        needs=_BLOCKS,
    ),
    fault(
        "F3.keys-of-last-row-stored",
        _CLASS,
        "issue trackers",
        "of a batch in prefill the last row's keys are stored under each row's prompt",
        _last_row_stored,
        kills=_STORED_TOGETHER,
        where="cache:*",
        needs=_BLOCKS,
    ),
    fault(
        "F4.block-freed-while-held",
        _CLASS,
        "issue trackers",
        "a block that two requests hold is free when one lets go of it",
        _released_twice,
        kills=_KILLS,
        where="cache:*",
        needs=_BLOCKS,
    ),
)
