"""mlx-vlm's pool of prefixes, asked in drawn order, beside its rules written a second time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_vlm.models.cache import ArraysCache, KVCache

from conformance.checks.pool_rules import problems
from conformance.core.engine_options import PrefixCaching
from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat
from conformance.plugins.mlx_vlm.pool_recording import PoolRecording
from conformance.plugins.mlx_vlm.prefix_caching import make_manager

apc: Any = compat.part("apc")

_FILE = "mlx_vlm/apc*.py"
_BLOCK, _LAYERS, _HEADS, _SIZE = 4, 2, 2, 4
# Calls of one sequence, and tokens of the longest prompt.
_CALLS, _LONGEST = 18, 30
_SEQUENCES = 6

# How pools are bounded: by number, by bytes, behind files, by files alone.
_BOUNDS = {
    "by_number": PrefixCaching(blocks=7, snapshots=2, block_size=_BLOCK),
    "by_bytes": PrefixCaching(blocks=64, snapshots=4, block_size=_BLOCK, times_first=2.5),
    "behind_files": PrefixCaching(blocks=5, snapshots=1, block_size=_BLOCK, disk=True),
    "files_alone": PrefixCaching(block_size=_BLOCK, snapshots=0, times_first=0, disk=True),
    "few_snapshots": PrefixCaching(blocks=2, snapshots=3, block_size=_BLOCK),
}


def pool_properties() -> list[Property]:
    """Those of ``APCManager``, by its bounds, and of the functions that it calls."""
    names = (
        *("APCManager.*", "APCStats.*", "APCNode.*", "KVBlockHandle.*", "APCBlock*", "from_env*"),
        *("_array_bytes", "_checkpoint_match_len", "_dense_checkpoint_*", "_clone_*", "_copy_*"),
        *("make_warm_*", "_fill_*", "harvest_*", "commit_*", "layer_kv_for_apc", "_hash_tokens"),
        *("_sequence_hash", "_collect_mx_arrays", "DiskBlockStore.*", "clone_cache_entry"),
        *("reserve_checkpoint_capacity", "_merge_exact_*", "merge_cache_entries", "_setting"),
        *("extract_prompt_cache_from_batch", "snapshot_prompt_cache_row", "_prompt_cache_is_*"),
        *("_pad_kv_for_capacity", "_state_clone", "PrefillMemoryPlan.*", "apc_lookup_plan"),
    )
    counts = ("APCStats.*", "APCManager.stats_snapshot", "APCManager.reset_stats")
    return [
        *(
            Property(f"pool: {name}", _FILE, names, partial(_drawn_calls, bound))
            for name, bound in _BOUNDS.items()
        ),
        Property("pool: counts", _FILE, counts, _counts),
    ]


@dataclass
class _Pool:
    """A pool that is asked as generators ask it.

    Attributes:
        leases: blocks that are held, each list until it is released.
    """

    manager: Any
    draw: np.random.Generator
    leases: list[list[Any]] = field(default_factory=list)

    def keep(self, tokens: list[int], key: int, *, snapshot: bool) -> Iterator[str]:
        """Keep a prompt's blocks or its caches."""
        if snapshot:
            self.manager.store_exact_cache(tokens, _caches(tokens, key), extra_hash=key)
            return
        held, found = self.manager.lookup_prefix(tokens, extra_hash=key)
        keys, values = _kv(tokens, key)
        new = self.manager.store_kv_blocks(
            tokens, keys, values, extra_hash=key, skip_first_n_tokens=found
        )
        self.leases.append([*held, *new])
        yield from _wrong_blocks(self.leases[-1], key, "kept")

    def find(self, tokens: list[int], key: int, *, snapshot: bool) -> Iterator[str]:
        """Find what is kept of a prompt, and hold its blocks."""
        if snapshot:
            caches, count = self.manager.lookup_exact_cache(tokens, extra_hash=key)
            if caches is not None:
                yield from _wrong_caches(caches, tokens[:count], key)
            return
        held, count = self.manager.lookup_prefix(tokens[:-1], extra_hash=key)
        self.leases.append(held)
        if [t for b in held for t in b.token_ids] != tokens[:count]:
            yield f"{count} tokens are found, of which the blocks have others"
        yield from _wrong_blocks(held, key, "found")
        least = count if self.draw.integers(2) else 0
        caches, more = self.manager.lookup_prefix_disk_cache(
            tokens, extra_hash=key, min_prefix_tokens=least, allow_memory_overlap=least > 0
        )
        if caches is not None:
            yield from _wrong_streams(caches, tokens[:more], key)

    def release(self) -> None:
        """Release the blocks of one call."""
        if self.leases:
            self.manager.release(self.leases.pop(int(self.draw.integers(len(self.leases)))))


def _drawn_calls(bound: PrefixCaching) -> Iterator[str]:
    """Prompts with the same starts, of two keys, kept, found and released in any order."""
    for seed in range(_SEQUENCES):
        draw = np.random.default_rng(seed)
        with TemporaryDirectory() as folder:
            manager = make_manager(bound, folder if bound.disk else None)
            recording = PoolRecording(manager, bound.times_first)
            pool = _Pool(manager, draw)
            try:
                for _ in range(_CALLS):
                    yield from _one_call(pool, seed)
                while pool.leases:
                    pool.release()
                calls = list(recording.calls())
                yield from (
                    f"{what}: {wanted}, and {got}"
                    for _, what, wanted, got in problems(calls, bound)
                )
                yield from _cleared(manager, bound)
            finally:
                manager.close()


def _one_call(pool: _Pool, seed: int) -> Iterator[str]:
    # Files of plain caches could be cut, which the rules of pools leave out.
    least = 3 if pool.manager.disk is None else 4
    draw, key = pool.draw, int(pool.draw.integers(2)) + least
    # Half of the sequences are of blocks, half of snapshots.
    snapshot = bool(seed % 2)
    starts = [list(range(50, 50 + _LONGEST)), [*range(50, 59), *range(80, 80 + _LONGEST - 9)]]
    tokens = starts[int(draw.integers(2))][: int(draw.integers(3, _LONGEST))]
    what = int(draw.integers(6))
    if what < 2:
        yield from pool.keep(tokens, key, snapshot=snapshot)
    elif what < 4:
        yield from pool.find(tokens, key, snapshot=snapshot)
    else:
        pool.release()
    if pool.manager.disk is not None:
        pool.manager.disk.flush()


def _cleared(manager: Any, bound: PrefixCaching) -> Iterator[str]:
    said = manager.stats_snapshot()
    if manager.disk is not None:
        sizes = [said["disk_max_bytes"], said["disk_queue_max_bytes"], said["memory_max_bytes"]]
        if sizes != [
            manager.disk.max_bytes,
            manager.disk.queue_max_bytes,
            manager.memory_max_bytes,
        ]:
            yield f"bounds are shown as {sizes}"
    manager.clear()
    said = manager.stats_snapshot()
    left = {
        n: said[n] for n in ("pool_used", "resident_bytes", "lookups_hit", "evictions", "stores")
    }
    if any(left.values()):
        yield f"after clear() it counts {left}"
    tokens = list(range(bound.blocks * _BLOCK))
    if bound.times_first is None:
        kept = manager.store_kv_blocks(tokens, *_kv(tokens, 1), extra_hash=1)
        if len(kept) != bound.blocks:
            yield f"after clear() there is room for {len(kept)} blocks of {bound.blocks}"
        manager.release(kept)


def _kv(tokens: list[int], key: int) -> tuple[list[Any], list[Any]]:
    """Keys and values that say of which token, place and prompt they are: ``[1, H, T, size]``."""
    places = np.arange(len(tokens)) * 0.001 + np.array(tokens, np.float32)
    grid = np.broadcast_to(places[None, None, :, None], (1, _HEADS, len(tokens), _SIZE))
    beside = np.arange(_HEADS)[None, :, None, None] * 1000.0 + np.arange(_SIZE) * 0.1 + key * 1e4
    layers = [mx.array((grid + beside + 3e4 * n).astype(np.float32)) for n in range(2 * _LAYERS)]
    mx.eval(layers)
    return layers[:_LAYERS], layers[_LAYERS:]


def _caches(tokens: list[int], key: int) -> list[Any]:
    """Of a model with keys and values and a state."""
    caches: list[Any] = []
    for keys, values in zip(*_kv(tokens, key), strict=True):
        cache = KVCache()
        cache.update_and_fetch(keys, values)
        mx.eval(cache.state)
        caches.append(cache)
    if key > 3:  # without a state they can be cut
        state = ArraysCache(1)
        state[0] = mx.array([[float(sum(tokens)), len(tokens)]])
        caches.append(state)
    return caches


def _wrong_caches(caches: list[Any], tokens: list[int], key: int) -> Iterator[str]:
    yield from _wrong_streams(caches[:_LAYERS], tokens, key)
    for right, wrong in zip(_caches(tokens, key)[_LAYERS:], caches[_LAYERS:], strict=True):
        if not mx.array_equal(right[0], wrong[0]):
            yield f"the state of {len(tokens)} tokens is another"


def _wrong_streams(caches: list[Any], tokens: list[int], key: int) -> Iterator[str]:
    for layer, (cache, keys, values) in enumerate(zip(caches, *_kv(tokens, key), strict=True)):
        got = cache.state
        if cache.offset != len(tokens) or not (
            mx.array_equal(got[0], keys) and mx.array_equal(got[1], values)
        ):
            yield f"layer {layer} of {len(tokens)} tokens is not what was kept"


def _wrong_blocks(blocks: list[Any], key: int, said: str) -> Iterator[str]:
    """Each block has the arrays of its tokens, which are the next ones of its prompt."""
    tokens = [token for block in blocks for token in block.token_ids]
    if not tokens:
        return
    want = _kv(tokens, key)
    for number, block in enumerate(blocks):
        span = slice(number * _BLOCK, (number + 1) * _BLOCK)
        for kind, arrays in zip(want, (block.keys, block.values), strict=True):
            for one, other in zip(kind, arrays or (), strict=True):
                if not mx.allclose(one[..., span, :], other, atol=0.5 * _BLOCK * 1e-3 * _LONGEST):
                    yield f"block {number} that is {said} has other keys or values"
    picks = [{"matched_blocks": blocks, "prefix_len": len(tokens)}, None]
    caches, longest = apc.make_warm_batch_kv_cache_multi(picks, num_layers=_LAYERS)
    if longest != len(tokens):
        yield f"a batch with {len(tokens)} tokens of blocks begins with {longest}"
    for cache, keys in zip(caches or (), want[0], strict=True):
        row = cache.extract(0)
        if not mx.allclose(row.state[0], keys, atol=0.06):
            yield "a batch that begins with blocks has other keys"


_SAID = {
    "hits": "lookups_hit",
    "misses": "lookups_miss",
    **{name: name for name in ("pool_used", "matched_tokens", "stored_tokens", "restored_tokens")},
    **{name: name for name in ("evictions", "stores", "disk_hits", "disk_writes", "exact_hits")},
    **{name: name for name in ("disk_write_failures", "exact_stores", "memory_evictions")},
    **{name: name for name in ("memory_skips", "rejects", "rejects_by_reason", "last_reject")},
}


def _counts() -> Iterator[str]:
    """Each count by its name, the share of tokens that were found, and what was refused."""
    stats = apc.APCStats()
    if any(vars(stats).values()) or stats.snapshot(1, 2)["token_hit_rate"] != 0:
        yield f"counts begin with {vars(stats)}"
    numbers = [name for name in _SAID if isinstance(getattr(stats, name), int)]
    for number, name in enumerate(numbers, start=3):
        setattr(stats, name, number)
    before = stats.rejects
    for reason, count in (("a", 1), ("b", 1), ("a", 2)):
        stats.record_reject(reason, tokens=count)
    said = stats.snapshot(7, 5)
    for name, shown in _SAID.items():
        if said.get(shown) != getattr(stats, name):
            yield f"{name} are shown as {said.get(shown)}"
    refused = stats.rejects - before, stats.rejects_by_reason, stats.last_reject
    if refused != (3, {"a": 2, "b": 1}, {"reason": "a", "tokens": 2}):
        yield f"what is refused is counted as {refused}"
    found, kept = stats.matched_tokens, stats.stored_tokens
    if (said["num_blocks"], said["block_size"]) != (7, 5) or said["token_hit_rate"] != found / (
        found + kept
    ):
        yield f"sizes and shares are {said}"
    if set(said) != {*_SAID.values(), "num_blocks", "block_size", "token_hit_rate"}:
        yield f"counts are shown as {sorted(said)}"
