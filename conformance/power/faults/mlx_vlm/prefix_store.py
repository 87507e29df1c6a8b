"""Faults of the pool of prefixes: which it keeps, for whom, and how it counts them."""

from __future__ import annotations

from functools import partial
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, replace, together, wrap
from conformance.plugins.mlx_vlm.library_parts import part
from conformance.power.faults.mlx_vlm.tools import MEDIUM, QUANTIZABLE, mlx_vlm_fault

_fault = partial(
    mlx_vlm_fault,
    fault_class="prefix cache policy",
    source="issue trackers: a prefix cache that grew, or served what was another's",
    kills=("prefix_store",),
    where="cache:*",
)
_of_blocks = partial(_fault, needs=("only:KVCache",))
_of_snapshots = partial(_fault, needs=("cache:ArraysCache|cache:RotatingKVCache",))


def _manager() -> Any:
    return part("apc").APCManager


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


@_fault("A6.bytes-not-bounded", kills=("prefix_store/by_bytes",))
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


@_of_snapshots("A6.snapshot-in-file-not-found", kills=("prefix_store/files_alone",))
def snapshot_in_file_not_found(hits: Hits) -> Patch:
    """What is only in files is not found."""

    def none(found: Any, *_: Any, **__: Any) -> None:
        hits.hit_if(found)

    return after(part("apc").DiskBlockStore, "find_exact_prefix", none)


@_fault("F3.tenant-not-in-key", kills=("prefix_store/tenants",))
def tenant_not_in_key(hits: Hits) -> Patch:
    """A tenant is served what another one asked for."""

    def key(right: Right, tenant: Any, payload_hash: int = 0) -> int:
        hits.hit_if(tenant)
        found: int = right(None, payload_hash)
        return found

    return wrap(part("apc"), "tenant_scoped_hash", key)


@_fault(
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


@_fault(
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
