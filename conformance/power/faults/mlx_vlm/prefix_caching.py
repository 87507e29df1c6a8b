"""Faults of the prefix cache's blocks: what is kept under which key, and what comes back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, wrap
from conformance.plugins.mlx_vlm.library_parts import part
from conformance.power.faults.mlx_vlm.tools import mlx_vlm_fault

_fault = partial(
    mlx_vlm_fault,
    fault_class="prefix cache",
    source="issue trackers",
    kills=("prefix_caching",),
    where="cache:*",
    # Caches of several kinds are kept whole, as snapshots.
    needs=("only:KVCache",),
)
# Rows of unequal prefixes in one prefill, of which each goes on to decode.
_restored = partial(_fault, source="a Swift engine's fork", kills=("prefix_caching/beside_cold",))
# Two prompts are prefilled together, and what is stored of both is used again.
_stored = partial(_fault, kills=("prefix_caching/late",))


def _manager() -> Any:
    return part("apc").APCManager


# In that schedule a prompt has another one's blocks in another order.
@_fault("F3.key-without-what-came-before", kills=("prefix_caching/in_turn",))
def key_without_what_came_before(hits: Hits) -> Patch:
    """A block is kept under a key of its own tokens only."""
    owner = part("apc")

    def of_block(_: Right, parent: int, tokens: Any, extra: int) -> int:
        hits.hit_if(parent != owner.SEED_PARENT_HASH)
        return hash((tokens, extra))

    return wrap(owner, "_hash_tokens", of_block)


@_fault("F5.hit-off-by-one")
def hit_off_by_one(hits: Hits) -> Patch:
    """Blocks hold the keys of the tokens one place further."""

    def moved(layers: list[Any]) -> list[Any]:
        return [mx.roll(layer, -1, 2) for layer in layers]

    def store(
        right: Right, self: Any, token_ids: Any, keys: Any, values: Any, **options: Any
    ) -> Any:
        hits.hit()
        return right(self, token_ids, moved(keys), moved(values), **options)

    return wrap(_manager(), "store_kv_blocks", store)


@_fault("F5.hit-one-token-too-short", needs=("cache:KVCache",))
def hit_one_token_too_short(hits: Hits) -> Patch:
    """The last token of what comes back is computed again."""

    def shorter(plan: Any, *_: Any, **__: Any) -> Any:
        if plan is not None and 0 < plan["prefix_len"] - 1 < len(plan["full_input_ids"]):
            hits.hit()
            plan["prefix_len"] -= 1
        return plan

    return after(part("apc_coordinator").APCCoordinator, "lookup", shorter)


@_fault(
    "F5.hit-not-used",
    source="mlx-vlm 0.7.10, models/cache.py:627",
    kills=("prefix_caching/in_turn",),
    needs=(),
)
def hit_not_used(hits: Hits) -> Patch:
    """What was found for a prompt is not taken into the batch: all of it is computed again."""

    def merged(right: Right, self: Any, picks: Any, lengths: Any, **options: Any) -> Any:
        if any(pick is not None for pick in picks):
            hits.hit()
            return None, 0
        return right(self, picks, lengths, **options)

    return wrap(part("apc_coordinator").APCCoordinator, "merge_rows", merged)


def _filled(change: Callable[[Any, list[int]], None], hits: Hits) -> Patch:
    """``change(cache, left_padding)`` on each cache that is made of blocks for several rows."""

    def fill(made: Any, _keys: Any, _values: Any, left_padding: Any, *_: Any, **__: Any) -> Any:
        if any(left_padding):
            hits.hit()
            change(made, list(left_padding))
        return made

    return after(part("apc"), "_fill_batch_layer_cache", fill)


@_restored("D9.restored-row-at-wrong-offset")
def restored_row_at_wrong_offset(hits: Hits) -> Patch:
    """Restored rows of a batch begin at the offset of the longest."""

    def of_longest(cache: Any, left_padding: list[int]) -> None:
        cache.offset = cache.offset + mx.array(left_padding)

    return _filled(of_longest, hits)


@_restored("D9.padding-of-restored-row-seen")
def padding_of_restored_row_seen(hits: Hits) -> Patch:
    """The zeros before a shorter restored row are attended to."""

    def none(cache: Any, left_padding: list[int]) -> None:
        cache.left_padding = mx.zeros_like(mx.array(left_padding))

    return _filled(none, hits)


def _stored_of(row: Callable[[int], int], hits: Hits) -> Patch:
    """Of a batch of ``n`` prompts row ``row(n)``'s keys are stored under each row's prompt."""

    def harvest(right: Right, manager: Any, caches: Any, tokens: Any, **options: Any) -> Any:
        rows = getattr(caches[0], "batch_size", 1) if caches else 1
        at = row(rows)
        if rows > 1 and options.get("batch_idx") != at:
            hits.hit()
            least = min(len(tokens), int(caches[0].offset[at].item()))
            return right(manager, caches, tokens[:least], **{**options, "batch_idx": at})
        return right(manager, caches, tokens, **options)

    return wrap(part("apc"), "harvest_blocks_from_batch_cache", harvest)


@_stored("F3.keys-of-row-0-stored")
def keys_of_row_0_stored(hits: Hits) -> Patch:
    """Of a batch in prefill the first row's keys are stored under each row's prompt."""
    return _stored_of(lambda _: 0, hits)


@_stored("F3.keys-of-last-row-stored")
def keys_of_last_row_stored(hits: Hits) -> Patch:
    """Of a batch in prefill the last row's keys are stored under each row's prompt."""
    return _stored_of(lambda rows: rows - 1, hits)


@_fault("F4.block-freed-while-held")
def block_freed_while_held(hits: Hits) -> Patch:
    """A block that two requests hold is free when one lets go of it."""

    def release(right: Right, self: Any, blocks: Any) -> None:
        held = list(blocks)
        right(self, held)
        shared = [block for block in held if block.ref_cnt > 0]
        if shared:
            hits.hit()
            right(self, shared)

    return wrap(_manager(), "release", release)
