"""The prefix cache: keys of blocks and snapshots, what comes back, which are kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, replace, together, wrap
from conformance.plugins.mlx_vlm.library_parts import cache_class, part
from conformance.power.faults.mlx_vlm.tools import MEDIUM, QUANTIZABLE, ROTATING, mlx_vlm_fault
from conformance.power.faults.shared_faults import ring_as_line

# Parts of red, green and blue in the brightness of a pixel; shades of it that are kept apart.
_LUMA, _SHADES = (0.299, 0.587, 0.114), 16
_LETTERS = 64
_block = partial(
    mlx_vlm_fault,
    fault_class="prefix cache",
    source="issue trackers",
    kills=("prefix_caching",),
    where="cache:*",
    # Caches of several kinds are kept whole, as snapshots.
    needs=("only:KVCache",),
)
# Rows of unequal prefixes in one prefill, of which each goes on to decode.
_restored_block = partial(
    _block, source="a Swift engine's fork", kills=("prefix_caching/beside_cold",)
)
# Two prompts are prefilled together, and what is stored of both is used again.
_stored_block = partial(_block, kills=("prefix_caching/late",))


def _manager() -> Any:
    return part("apc").APCManager


# In that schedule a prompt has another one's blocks in another order.
@_block("F3.key-without-what-came-before", kills=("prefix_caching/in_turn",))
def key_without_what_came_before(hits: Hits) -> Patch:
    """A block is kept under a key of its own tokens only."""
    owner = part("apc")

    def of_block(_: Right, parent: int, tokens: Any, extra: int) -> int:
        hits.hit_if(parent != owner.SEED_PARENT_HASH)
        return hash((tokens, extra))

    return wrap(owner, "_hash_tokens", of_block)


@_block("F5.hit-off-by-one")
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


@_block("F5.hit-one-token-too-short", needs=("cache:KVCache",))
def hit_one_token_too_short(hits: Hits) -> Patch:
    """The last token of what comes back is computed again."""

    def shorter(plan: Any, *_: Any, **__: Any) -> Any:
        if plan is not None and 0 < plan["prefix_len"] - 1 < len(plan["full_input_ids"]):
            hits.hit()
            plan["prefix_len"] -= 1
        return plan

    return after(part("apc_coordinator").APCCoordinator, "lookup", shorter)


@_block(
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


@_restored_block("D9.restored-row-at-wrong-offset")
def restored_row_at_wrong_offset(hits: Hits) -> Patch:
    """Restored rows of a batch begin at the offset of the longest."""

    def of_longest(cache: Any, left_padding: list[int]) -> None:
        cache.offset = cache.offset + mx.array(left_padding)

    return _filled(of_longest, hits)


@_restored_block("D9.padding-of-restored-row-seen")
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


@_stored_block("F3.keys-of-row-0-stored")
def keys_of_row_0_stored(hits: Hits) -> Patch:
    """Of a batch in prefill the first row's keys are stored under each row's prompt."""
    return _stored_of(lambda _: 0, hits)


@_stored_block("F3.keys-of-last-row-stored")
def keys_of_last_row_stored(hits: Hits) -> Patch:
    """Of a batch in prefill the last row's keys are stored under each row's prompt."""
    return _stored_of(lambda rows: rows - 1, hits)


@_block("F4.block-freed-while-held")
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


_snapshot = partial(
    mlx_vlm_fault,
    fault_class="prefix cache",
    source="issue trackers",
    kills=("prefix_caching",),
    where="cache:*",
    needs=ROTATING,
)


# Blocks are never reused past a medium, whatever their key.
@_snapshot("F8.key-of-text-alone", needs=(MEDIUM, "cache:ArraysCache|cache:RotatingKVCache"))
def key_of_text_alone(hits: Hits) -> Patch:
    """The key of a prompt leaves out its image: the old image's keys are reused."""

    def of_text(right: Right, **given: Any) -> int:
        wrong: int = right(**{**given, "image_hash": 0, "media": None})
        hits.hit_if(wrong != right(**given))
        return wrong

    return wrap(part("apc"), "semantic_extra_hash", of_text)


@_snapshot("F4.snapshot-aliases-live-batch")
def snapshot_aliases_live_batch(hits: Hits) -> Patch:
    """A kept snapshot is the live cache, which goes on changing."""

    def alias(_: Right, prompt_cache: Any, **__: Any) -> Any:
        hits.hit()
        return list(prompt_cache)

    return wrap(part("apc"), "_clone_prompt_cache_for_apc", alias)


@_snapshot("F6.ring-taken-for-a-line", fault_class="cache extract")
def ring_taken_for_a_line(hits: Hits) -> Patch:
    """The snapshot of a window that was overwritten begins in its middle."""
    return ring_as_line(cache_class("BatchRotatingKVCache"), hits)


_policy = partial(
    mlx_vlm_fault,
    fault_class="prefix cache policy",
    source="issue trackers: a prefix cache that grew, or served what was another's",
    kills=("prefix_store",),
    where="cache:*",
)
_of_blocks = partial(_policy, needs=("only:KVCache",))
_of_snapshots = partial(_policy, needs=("cache:ArraysCache|cache:RotatingKVCache",))


@_of_blocks("A6.newest-block-given-up", kills=("prefix_store/by_number",))
def newest_block_given_up(hits: Hits) -> Patch:
    """The block that was used last is given up, and the oldest stays for ever."""

    def evict(right: Right, self: Any, *, cached_only: bool = False) -> Any:
        newest, oldest = self._free_tail, self._free_head
        if newest is oldest or None in {newest.block_hash, oldest.block_hash}:
            return right(self, cached_only=cached_only)
        hits.hit()
        with replace(self, "_free_head", newest):
            return right(self, cached_only=cached_only)

    return wrap(_manager(), "_evict_lru", evict)


@_of_snapshots("A6.snapshot-not-renewed", kills=("prefix_store/by_number",))
def snapshot_not_renewed(hits: Hits) -> Patch:
    """A snapshot that is used again stays the next to be given up."""

    def find(right: Right, self: Any, *args: Any, **options: Any) -> Any:
        order = list(self._exact_cache)
        found = right(self, *args, **options)
        hits.hit_if(order != list(self._exact_cache))
        for key in order:
            if key in self._exact_cache:
                self._exact_cache.move_to_end(key)
        return found

    return wrap(_manager(), "lookup_exact_cache", find)


@_policy("A6.bytes-not-bounded", kills=("prefix_store/by_bytes",))
def bytes_not_bounded(hits: Hits) -> Patch:
    """Nothing is given up for the bytes that are kept."""

    def room(right: Right, self: Any, *args: Any, **options: Any) -> bool:
        bound = self.memory_max_bytes
        hits.hit_if(self.resident_bytes() + options.get("retain_bytes", 0) > bound > 0)
        with replace(self, "memory_max_bytes", 2 * bound):
            found: bool = right(self, *args, **options)
        return found

    return wrap(_manager(), "_make_room", room)


@_of_blocks("F4.held-block-given-up", kills=("prefix_store/held",))
def held_block_given_up(hits: Hits) -> Patch:
    """Where all blocks are held, one of these is given up."""

    def evict(right: Right, self: Any, *, cached_only: bool = False) -> Any:
        found = right(self, cached_only=cached_only)
        if found is not None or cached_only:
            return found
        hits.hit()
        self.hash_table.pop(self.pool[0].block_hash, None)
        return self.pool[0]

    return wrap(_manager(), "_evict_lru", evict)


@_of_snapshots("A6.snapshot-of-any-length", kills=("prefix_store/served",))
def snapshot_of_any_length(hits: Hits) -> Patch:
    """A prompt of 15 tokens gets a snapshot, which takes the place of a longer one."""

    def store(right: Right, self: Any, tokens: Any, *args: Any, **options: Any) -> Any:
        hits.hit_if(len(tokens) < self.exact_cache_min_tokens)
        with replace(self, "exact_cache_min_tokens", 1):
            return right(self, tokens, *args, **options)

    return wrap(_manager(), "store_exact_cache", store)


@_of_blocks("A6.files-read-from-second-block", kills=("prefix_store/files_alone",))
def files_read_from_second_block(hits: Hits) -> Patch:
    """Of a prefix in files the first block's keys come last."""

    def rolled(found: Any, *_: Any, **__: Any) -> Any:
        if found is None:
            return None
        hits.hit()
        keys, values, more = found
        return [mx.roll(k, -1, 2) for k in keys], values, more

    return after(part("apc").DiskBlockStore, "load_layer_major_prefix", rolled)


@_policy("F3.tenant-not-in-key", kills=("prefix_store/tenants",))
def tenant_not_in_key(hits: Hits) -> Patch:
    """A tenant is served what another one asked for."""

    def key(right: Right, tenant: Any, payload_hash: int = 0) -> int:
        hits.hit_if(tenant)
        found: int = right(None, payload_hash)
        return found

    return wrap(part("apc"), "tenant_scoped_hash", key)


@_policy(
    "F8.mirrored-picture-is-the-same",
    source="a review: near twins",
    needs=("modality:image", "cache:ArraysCache|cache:RotatingKVCache"),
    kills=("traffic_media/image_kept",),
)
def mirrored_picture_is_the_same(hits: Hits) -> Patch:
    """The key of a picture is made of its values without their order."""
    known: dict[int, int] = {}

    def key(right: Right, payload: Any) -> int:
        true: int = right(payload)
        found: int = right(mx.sort(mx.array(payload).flatten()))
        hits.hit_if(known.setdefault(found, true) != true)
        return found

    return wrap(part("apc"), "_tensor_content_hash", key)


_twin = partial(
    _policy,
    source="a review: near twins",
    needs=("modality:image", "cache:ArraysCache|cache:RotatingKVCache"),
    kills=("traffic_media/image_pairs",),
)


def _key_of_picture(wrong_of: Callable[[Right, mx.array], int], hits: Hits) -> Patch:
    """Pictures have the key ``wrong_of(right, pixels)``; an effect where two have the same one."""
    known: dict[int, int] = {}

    def key(right: Right, pixel_values: Any = None, image_ref: Any = None) -> int:
        true: int = right(pixel_values, image_ref)
        if not isinstance(pixel_values, mx.array):
            return true
        found = wrong_of(right, pixel_values)
        hits.hit_if(known.setdefault(found, true) != true)
        return found

    return wrap(part("apc"), "hash_image_payload", key)


@_twin("F8.pictures-in-any-order")
def pictures_in_any_order(hits: Hits) -> Patch:
    """Keys of several pictures are added up: in another order they have the same."""

    def key(right: Right, pixels: mx.array) -> int:
        return sum(right(picture) for picture in pixels)

    return _key_of_picture(key, hits)


@_twin("F8.two-equal-pictures-cancel-out")
def two_equal_pictures_cancel_out(hits: Hits) -> Patch:
    """Keys of several pictures are folded by exclusive or: two equal ones have that of none."""

    def key(right: Right, pixels: mx.array) -> int:
        found = 0
        for number, picture in enumerate(pixels):
            found ^= right(picture) if number < 2 else number
        return found

    return _key_of_picture(key, hits)


@_twin("F8.picture-in-gray")
def picture_in_gray(hits: Hits) -> Patch:
    """The key of a picture is made of its brightness: other colours are the same picture."""

    def key(right: Right, pixels: mx.array) -> int:
        if pixels.ndim != 4 or pixels.shape[1] != len(_LUMA):
            return int(right(pixels))
        bright = mx.sum(pixels * mx.array(_LUMA)[:, None, None], axis=1)
        return int(right(mx.round(bright * _SHADES)))

    return _key_of_picture(key, hits)


@_policy(
    "F3.last-block-alone-compared",
    source="a review: near twins",
    # What was restored into a batch is kept as plain keys and values, which can be cut.
    needs=("cache:ChunkedKVCache",),
    kills=("traffic_kept/busy",),
)
def last_block_alone_compared(hits: Hits) -> Patch:
    """Prompts that agree in a block are taken for the same up to there."""

    def match(right: Right, tokens: Any, stored: Any, most: int, *given: Any) -> int:
        found: int = right(tokens, stored, most, *given)
        size, trimmable = given
        ends = range(size, min(most, len(stored)) + 1, size) if trimmable else ()
        wrong = [end for end in ends if tokens[end - size : end] == stored[end - size : end]]
        hits.hit_if(max(wrong, default=0) > found)
        return max(found, *wrong, 0)

    return wrap(part("apc"), "_checkpoint_match_len", match)


@_of_blocks("F5.end-of-a-kept-buffer", kills=("prefix_store/files_alone",))
def end_of_a_kept_buffer(hits: Hits) -> Patch:
    """Of a kept cache with room for more the last places are taken."""

    def make(right: Right, picks: Any, *args: Any, **options: Any) -> Any:
        return right([pick and _at_end(pick, hits) for pick in picks], *args, **options)

    return wrap(part("apc"), "make_warm_batch_kv_cache_multi", make)


def _at_end(pick: dict[str, Any], hits: Hits) -> dict[str, Any]:
    """The pick with the last places of its kept cache in front."""
    for cache in pick.get("warm_cache") or ():
        room = cache.keys.shape[2] - pick["prefix_len"]
        hits.hit_if(room)
        cache.keys, cache.values = (mx.roll(s, -room, 2) for s in (cache.keys, cache.values))
    return pick


@_policy("F3.tenants-of-64-letters", source="a review: near twins", kills=("prefix_store/tenants",))
def tenants_of_64_letters(hits: Hits) -> Patch:
    """Tenants whose long names begin alike are served what the others asked for."""

    def key(right: Right, tenant: Any, payload_hash: int = 0) -> int:
        hits.hit_if(tenant and len(tenant) > _LETTERS)
        found: int = right(tenant and tenant[:_LETTERS], payload_hash)
        return found

    return wrap(part("apc"), "tenant_scoped_hash", key)


@_policy("F3.tenants-without-capitals", kills=("prefix_store/tenants",))
def tenants_without_capitals(hits: Hits) -> Patch:
    """Tenants whose names differ in capitals alone are served what the others asked for."""

    def key(right: Right, tenant: Any, payload_hash: int = 0) -> int:
        hits.hit_if(tenant and tenant != tenant.lower())
        found: int = right(tenant and tenant.lower(), payload_hash)
        return found

    return wrap(part("apc"), "tenant_scoped_hash", key)


@_policy(
    "F8.key-of-first-image",
    needs=(MEDIUM, "cache:ArraysCache|cache:RotatingKVCache"),
    kills=("prefix_store/image_kept",),
)
def key_of_first_image(hits: Hits) -> Patch:
    """Of several images the first alone is in the key: others' keys are reused."""

    def first(right: Right, pixel_values: Any = None, image_ref: Any = None) -> int:
        hits.hit_if(pixel_values is not None and len(pixel_values) > 1)
        found: int = right(pixel_values if pixel_values is None else pixel_values[:1], image_ref)
        return found

    return wrap(part("apc"), "hash_image_payload", first)


@_policy(
    "D9.restored-rows-not-quantized",
    fault_class="KV quant",
    needs=("only:KVCache", *QUANTIZABLE),
    kills=("prefix_store/turbo_in_turn",),
)
def restored_rows_not_quantized(hits: Hits) -> Patch:
    """The caches that are made of blocks are not quantized, as those of cold rows are."""
    owner = part("apc")

    def plain(right: Right, *args: Any, **options: Any) -> Any:
        hits.hit_if(options.get("quantize"))
        return right(*args, **{**options, "quantize": False})

    return together(wrap(owner, "_fill_batch_layer_cache", plain))
