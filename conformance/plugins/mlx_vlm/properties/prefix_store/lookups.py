"""Which kept prefix of a prompt mlx-vlm's generator takes, and what it keeps of a batch's row."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat
from conformance.plugins.mlx_vlm.properties.prefix_store.keys import environment

apc: Any = compat.part("apc")
caches: Any = compat.part("models.cache")

_FILE = "mlx_vlm/apc.py"
_TOKENS = list(range(12))
_BLOCK = 4


def lookup_properties() -> list[Property]:
    """Those of the plan of a lookup, of a row's keys and values, and of long prompts."""
    rows = ("layer_kv_for_apc", "harvest_*", "commit_prefix_blocks", "_copy_mlx_array")
    compact = ("APCManager.store_kv_blocks", "APCManager.lookup_exact_cache", "_clone_*")
    return [
        Property("lookups: which is taken", _FILE, ("apc_lookup_plan",), _taken),
        Property("lookups: rows that are kept", _FILE, rows, _kept),
        Property("lookups: long prompts", _FILE, (*compact, "_sequence_hash"), _long),
    ]


class _Sources:
    """Stands for a pool: what it has of a prompt in blocks, as a snapshot and in files."""

    def __init__(self, blocks: int, exact: int, disk: int) -> None:
        self._found = blocks, exact, disk
        self.held = ["held"] if blocks else []
        self.released: list[list[str]] = []
        self.asked: dict[str, Any] = {}

    def lookup_prefix(self, tokens: list[int], extra_hash: int) -> tuple[list[str], int]:
        self.asked["blocks"] = tokens, extra_hash
        return self.held, self._found[0]

    def lookup_exact_cache(self, tokens: list[int], **options: Any) -> tuple[Any, int]:
        self.asked["exact"] = tokens, options
        more = self._found[1] > options["min_prefix_tokens"]
        return ("exact", self._found[1]) if more else (None, 0)

    def lookup_prefix_disk_cache(self, tokens: list[int], **options: Any) -> tuple[Any, int]:
        self.asked["disk"] = tokens, options
        more = self._found[2] > options["min_prefix_tokens"]
        return ("disk", self._found[2]) if more else (None, 0)

    def release(self, blocks: list[str]) -> None:
        self.released.append(blocks)


def _taken() -> Iterator[str]:
    """The longest; of equal ones blocks before a snapshot before files; never before media."""
    count = len(_TOKENS)
    for blocks, exact, disk, least, media in itertools.product(
        (0, 4, 8), (0, 4, 6, 11), (0, 4, 8), (0, 5), (0, 3, 7)
    ):
        sources = _Sources(blocks, exact, disk)
        got = apc.apc_lookup_plan(
            sources,
            _TOKENS,
            extra_hash=9,
            apc_mode="block",
            safe_lookup_min=least,
            suffix_is_text_only=lambda n, media=media: n >= media,
            prefix_has_media=lambda n, media=media: 0 < media <= n,
        )
        own = 0 if 0 < media <= blocks else blocks
        best, kind = own, "blocks"
        if exact > max(best, least):
            best, kind = exact, "exact"
        if disk > max(best, least):
            best, kind = disk, "disk"
        wanted = (best, kind) if best and best >= media else None
        found = got and (got["prefix_len"], got.get("warm_cache", "blocks"))
        state = f"{blocks}, {exact}, {disk} tokens, at least {least}, media up to {media}"
        if found != wanted:
            yield f"of {state} {found} is taken, not {wanted}"
            continue
        if got and (got["extra_hash"], got["full_input_ids"]) != (9, _TOKENS):
            yield f"of {state} the plan is {got}"
        kept = wanted is not None and kind == "blocks"
        if got and got["matched_blocks"] != (sources.held if kept else []):
            yield f"of {state} {got['matched_blocks']} are held"
        let_go = [block for some in sources.released for block in some]
        if let_go != ([] if kept else sources.held):
            yield f"of {state} {let_go} are released"
        yield from _asked(sources, own, max(own, exact if exact > max(own, least) else 0), least)
    for few in ([], [1]):
        if apc.apc_lookup_plan(
            _Sources(4, 4, 4),
            few,
            extra_hash=0,
            apc_mode="block",
            safe_lookup_min=0,
            suffix_is_text_only=bool,
            prefix_has_media=bool,
        ):
            yield f"of a prompt of {len(few)} tokens something is taken"
    yield from _snapshots_only(count)


def _asked(sources: _Sources, blocks: int, best: int, least: int) -> Iterator[str]:
    want = {
        "blocks": (_TOKENS[:-1], 9),
        "exact": (_TOKENS, {"extra_hash": 9, "min_prefix_tokens": max(blocks, least)}),
        "disk": (
            _TOKENS,
            {
                "extra_hash": 9,
                "min_prefix_tokens": max(best, least),
                "allow_memory_overlap": best > 0,
            },
        ),
    }
    if sources.asked != want:
        yield f"a pool is asked for {sources.asked}, not {want}"


def _snapshots_only(count: int) -> Iterator[str]:
    """A model whose caches are kept whole is asked for these alone."""
    for exact, least, media in itertools.product((0, 4, 11, 12), (0, 5), (0, 7)):
        sources = _Sources(8, exact, 8)
        got = apc.apc_lookup_plan(
            sources,
            _TOKENS,
            extra_hash=9,
            apc_mode="exact",
            safe_lookup_min=least,
            suffix_is_text_only=lambda n, media=media: n >= media,
            prefix_has_media=bool,
        )
        right = least < exact < count and exact >= media
        wanted = [exact, "exact", [], 9, _TOKENS] if right else None
        names = ("prefix_len", "warm_cache", "matched_blocks", "extra_hash", "full_input_ids")
        found = got and [got[name] for name in names]
        if found != wanted or set(sources.asked) != {"exact"}:
            yield f"of a snapshot of {exact} tokens {found} is taken"
        options = {"extra_hash": 9, "min_prefix_tokens": least}
        if sources.asked.get("exact") != (_TOKENS, options):
            yield f"snapshots are asked for as {sources.asked}"


def _kept() -> Iterator[str]:
    """The tokens of one row, without its padding and without room behind them."""
    lengths = [5, 9]
    padding = [9 - n for n in lengths]
    keys = mx.arange(2 * 2 * 9 * 4).reshape(2, 2, 9, 4).astype(mx.float32)
    for dtype in (mx.float32, mx.bfloat16):
        batch = caches.BatchKVCache(padding)
        batch.update_and_fetch(keys.astype(dtype), -keys.astype(dtype))
        for row, left in enumerate(padding):
            found = apc.layer_kv_for_apc(batch, batch_idx=row)
            for got, want in zip(found, (keys, -keys), strict=True):
                part = want[row : row + 1, :, left:].astype(dtype)
                if got.shape != part.shape or not mx.array_equal(got, part):
                    yield f"of row {row} {got.shape} are kept, it holds {part.shape}"
        yield from _alone(keys[1:].astype(dtype), dtype)
    packed = SimpleNamespace(keys=(keys, keys), values=keys, offset=9)
    batches = caches.BatchKVCache([0]), caches.BatchQuantizedKVCache([0])
    for cache in (packed, caches.KVCache(), object(), *batches):
        if apc.layer_kv_for_apc(cache) != (None, None):
            yield f"of {type(cache).__name__}, which is empty, something is kept"
    half = caches.KVCache()
    half.keys, half.offset = keys, 9
    if apc.layer_kv_for_apc(half) != (None, None):
        yield "of keys without values something is kept"
    yield from _blocks_of_rows(keys, padding)


def _alone(keys: mx.array, dtype: mx.Dtype) -> Iterator[str]:
    """Of a stream, of a batch of one row with padding, and quantized."""
    stream = caches.KVCache()
    stream.update_and_fetch(keys, -keys)
    one, near = caches.BatchKVCache([3]), caches.BatchKVCache([1])
    one.update_and_fetch(keys, -keys)
    near.update_and_fetch(keys, -keys)
    for name, cache, row, want in (
        ("a stream", stream, None, keys),
        ("a stream", stream, 0, keys),
        ("a batch of one", one, None, keys),
        ("a row with padding", one, 0, keys[:, :, 3:]),
        ("a row with one column of padding", near, 0, keys[:, :, 1:]),
    ):
        got = apc.layer_kv_for_apc(cache, batch_idx=row)
        if not (mx.array_equal(got[0], want) and mx.array_equal(got[1], -want)):
            yield f"of {name} {got[0].shape} are kept, it holds {want.shape}"
    copied = apc._copy_mlx_array(keys)
    if copied.dtype != dtype or not mx.array_equal(copied, keys):
        yield f"a copy is {copied.dtype}, not {dtype}"
    wide = mx.repeat(keys, 8, axis=-1)
    single = caches.BatchQuantizedKVCache([2], group_size=32, bits=8)
    single.update_and_fetch(wide, -wide)
    for row, columns in ((None, wide.shape[2]), (0, wide.shape[2] - 2)):
        if (found := apc.layer_kv_for_apc(single, batch_idx=row)[0].shape[2]) != columns:
            yield f"of a quantized batch of one row {found} columns are kept, it has {columns}"
    for row, left in enumerate((2, 0)):
        batch = caches.BatchQuantizedKVCache([2, 0], group_size=32, bits=8)
        both = mx.concatenate([wide, wide * 2])
        batch.update_and_fetch(both, -both)
        got = apc.layer_kv_for_apc(batch, batch_idx=row)
        want = both[row : row + 1, :, left:]
        far = [float(mx.abs(g - w).max()) for g, w in zip(got, (want, -want), strict=True)]
        if got[0].shape != want.shape or max(far) > 0.02 * float(mx.abs(want).max()):
            yield f"of a quantized row {got[0].shape} are kept, up to {max(far):.2g} off"


def _blocks_of_rows(keys: mx.array, padding: list[int]) -> Iterator[str]:
    """What is kept of a batch's row is found again, and held by nobody."""
    batch = caches.BatchKVCache(padding)
    batch.update_and_fetch(keys, -keys)
    with environment():
        manager = apc.APCManager(
            num_blocks=9, block_size=_BLOCK, overrides={"memory_reserve_gb": 0}
        )
    manager._disk_min_free_ram_bytes = 0
    tokens = _TOKENS[: 9 - padding[1]]
    held = apc.harvest_blocks_from_batch_cache(manager, [batch], tokens, batch_idx=1, extra_hash=3)
    new = apc.commit_prefix_blocks(
        manager, [batch], tokens, batch_idx=1, extra_hash=3, blocks_in_use=held
    )
    used = [block.ref_cnt for block in new]
    if (len(held), len(new), used) != (2, 2, [0, 0]):
        yield f"{len(held)} blocks are kept of 9 tokens, and held {used} times afterwards"
    found, count = manager.lookup_prefix(tokens, extra_hash=3)
    got = np.concatenate([np.array(block.keys[0]) for block in found], axis=2)
    if count != 8 or (got != np.array(keys[1:, :, :8])).any():
        yield f"of a row {count} tokens are found, or others than it holds"
    plain = apc.commit_prefix_blocks(manager, [caches.KVCache()], tokens)
    alone = caches.KVCache()
    alone.update_and_fetch(keys[:1], -keys[:1])
    ours = apc.commit_prefix_blocks(manager, [alone], tokens)
    if plain or [block.token_ids for block in ours] != [tuple(tokens[:4]), tuple(tokens[4:8])]:
        yield f"of a stream without options {len(ours)} blocks are kept"
    if manager.lookup_prefix(tokens)[1] != 8 or manager.lookup_prefix(tokens, extra_hash=0)[1] != 8:
        yield "what is kept without a key is not found without one"
    nothing = apc.harvest_blocks_from_batch_cache(manager, [batch, caches.KVCache()], tokens)
    if nothing or manager.lookup_prefix(tokens, extra_hash=4) != ([], 0):
        yield "blocks are kept of a layer that is empty, or found under another key"
    skipped = apc.harvest_blocks_from_batch_cache(
        manager, [batch], tokens, batch_idx=1, extra_hash=5, skip_first_n_tokens=_BLOCK
    )
    if [block.token_ids for block in skipped] != [tuple(tokens[4:8])]:
        yield "what is kept already is kept again"


def _long() -> Iterator[str]:
    """A prompt of more tokens than a bound is kept in one piece, up to its last whole block."""
    for bound, entries, guard, kept in (
        (8, 2, 1, 8),
        (9, 2, 1, 0),
        (8, 0, 1, 0),
        (4, 1, 6, 4),
        (1, 1, 1, 8),
    ):
        settings = {
            "memory_reserve_gb": 0,
            "checkpoint_entries": entries,
            "checkpoint_guard_tokens": guard,
        }
        with environment(APC_LAYER_MAJOR_MEMORY_MIN_TOKENS=str(bound)):
            manager = apc.APCManager(num_blocks=9, block_size=_BLOCK, overrides=settings)
        manager._disk_min_free_ram_bytes = 0
        tokens = _TOKENS[:10]
        arrays = [mx.arange(80).reshape(1, 2, 10, 4) * 1.0 + layer for layer in range(4)]
        for repeat in range(3):
            asked = [token + 100 * repeat for token in tokens]
            blocks = manager.store_kv_blocks(asked, arrays[:2], arrays[2:], extra_hash=3)
            if len(blocks) != (0 if kept else 2):
                yield f"with a bound of {bound} tokens {len(blocks)} blocks are kept beside it"
        whole = manager._exact_cache.values()
        if len(whole) != (min(entries, 3) if kept else 0):
            yield f"with room for {entries}, {len(whole)} prompts are kept in one piece"
        found, count = manager.lookup_exact_cache([*asked[:kept], -1, -2], extra_hash=3)
        if count != (kept if kept else 0):
            yield f"of a long prompt {count} tokens are found, {kept} are kept"
        for cache, keys, values in zip(found or (), arrays[:2], arrays[2:], strict=kept > 0):
            got = cache.state
            same = mx.array_equal(got[0], keys[..., :kept, :])
            if not same or not mx.array_equal(got[1], values[..., :kept, :]):
                yield "what is found of a long prompt is not what was kept"
