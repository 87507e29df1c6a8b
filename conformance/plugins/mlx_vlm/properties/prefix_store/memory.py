"""How much memory mlx-vlm's kept prefixes leave free, and what is given up for that."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any
from unittest.mock import Mock, patch

import mlx.core as mx
import numpy as np
from mlx_vlm.models.cache import KVCache

from conformance.core.engine_options import PrefixCaching
from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat
from conformance.plugins.mlx_vlm.prefix_caching import make_manager

apc: Any = compat.part("apc")

_FILE = "mlx_vlm/apc.py"
BLOCK, _LAYERS, _SIZE = 4, 2, 8
# Bytes of one token, float32: keys and values of each layer.
TOKEN = 2 * _LAYERS * _SIZE * 4
_CALLS = 40


def memory_properties() -> list[Property]:
    """Those of ``APCManager`` where memory is short."""
    room = ("APCManager.*", "APCNode.*", "KVBlockHandle.*")
    return [
        Property("memory: what is free", _FILE, ("APCManager._memory_headroom",), _free),
        Property("memory: what is given up", "mlx_vlm/apc*.py", room, _given_up),
        Property("memory: arrays of a pool", _FILE, room, _arrays),
    ]


def pool_of(folder: str | None = None, **more: Any) -> Any:
    """A pool of few blocks and snapshots, with or without files."""
    options = {"blocks": 8, "snapshots": 4, "block_size": BLOCK, **more}
    manager = make_manager(PrefixCaching(disk=folder is not None, **options), folder)
    manager.exact_cache_min_tokens = 1
    return manager


def keys_and_values(count: int) -> tuple[list[Any], list[Any]]:
    """Those of so many tokens, of each layer."""
    made = [mx.full((1, 1, count, _SIZE), float(n)) for n in range(2 * _LAYERS)]
    mx.eval(made)
    return made[:_LAYERS], made[_LAYERS:]


def plain_caches(count: int) -> list[Any]:
    """Plain caches of so many tokens, without room behind them."""
    found = []
    for keys, values in zip(*keys_and_values(count), strict=True):
        cache = KVCache()
        cache.keys, cache.values, cache.offset = keys, values, count
        found.append(cache)
    return found


def _free() -> Iterator[str]:
    """The least of what the device and the machine have left; the bounds where neither is known."""
    manager = apc.APCManager(num_blocks=1, overrides={"memory_max_gb": 1, "memory_reserve_gb": 2})
    for device, machine in itertools.product((None, 100, 1000), (None, 30, 500)):
        manager._working_set_bytes = device
        with ExitStack() as stack:
            stack.enter_context(patch.object(mx, "get_active_memory", lambda: 7))
            stack.enter_context(patch.object(mx, "get_cache_memory", lambda: 5))
            stack.enter_context(
                patch.object(apc, "_free_ram_bytes", lambda machine=machine: machine)
            )
            got = manager._memory_headroom()
        left = [n for n in (device and device - 7, machine and machine + 5) if n is not None]
        if got != min(left, default=3 << 30):
            yield f"of {device} bytes of a device and {machine} of a machine {got} are free"


class _Kept:
    """A pool with snapshots and blocks of which some are held; all of them by their sizes.

    Attributes:
        idle: names and bytes, in the order in which they are to be given up.
        held: bytes of blocks that are held.
    """

    def __init__(self, draw: np.random.Generator) -> None:
        self.manager = pool_of()
        self.idle: list[tuple[tuple[int, ...], int]] = []
        blocks: list[Any] = []
        for start in (100, 200):
            tokens = list(range(start, start + BLOCK * int(draw.integers(1, 4))))
            blocks += self.manager.store_kv_blocks(tokens, *keys_and_values(len(tokens)))
        draw.shuffle(blocks)
        count = int(draw.integers(len(blocks) + 1))
        self.held = (len(blocks) - count) * BLOCK * TOKEN
        self.holds = len(blocks) - count
        self.manager.release(blocks[:count])
        for start in range(300, 300 + 100 * int(draw.integers(4)), 100):
            tokens = list(range(start, start + int(draw.integers(1, 9))))
            self.manager.store_exact_cache(tokens, plain_caches(len(tokens)))
            self.idle.append((tuple(tokens), len(tokens) * TOKEN))
        self.idle += [(block.token_ids, BLOCK * TOKEN) for block in blocks[:count]]

    def names(self) -> list[tuple[int, ...]]:
        """What is kept and not held, in the order in which it is to be given up."""
        found = [entry.token_ids for entry in self.manager._exact_cache.values()]
        block, seen = self.manager._free_head, 0
        while block is not None and seen <= self.manager.num_blocks:
            seen += 1
            if block.block_hash is not None:
                found.append(block.token_ids)
            block = block.next
        if seen != self.manager.num_blocks - self.holds:
            found.append(())
        return found


def _given_up() -> Iterator[str]:
    """Snapshots, then blocks, the oldest first, until bounds and reserves are kept."""
    for seed in range(_CALLS):
        draw = np.random.default_rng(seed)
        kept = _Kept(draw)
        manager, whole = kept.manager, kept.held + sum(size for _, size in kept.idle)
        if manager.resident_bytes() != whole:
            yield f"{manager.resident_bytes()} bytes are counted, {whole} are kept"
        manager.stats = apc.APCStats()
        manager.memory_max_bytes = int(draw.integers(1, whole + 2 * TOKEN))
        manager.memory_reserve_bytes = int(draw.integers(3)) * 50
        room = int(draw.integers(whole // 2, 2 * whole + 600))
        manager._memory_headroom = lambda m=manager, r=room: r - m.resident_bytes()
        reserve, allocation = (int(n) * 100 for n in draw.integers(0, 4, 2))
        retain = int(draw.integers(2)) * allocation
        manager._prefill_reserve_bytes = reserve
        required = manager.memory_reserve_bytes
        required += reserve + allocation if retain else max(reserve, allocation)
        with patch.object(mx, "clear_cache", Mock()) as cleared:
            if draw.integers(2):
                got = manager._make_room(allocation, retain_bytes=retain)
            else:
                manager.disk, allocation, retain = Mock(), 0, 0
                required = manager.memory_reserve_bytes + reserve
                manager.prepare_prefill(reserve)
                got = None
        least = max(0, min(manager.memory_max_bytes - retain, room - required))
        left, idle = whole, list(kept.idle)
        while left > least and idle:
            left -= idle.pop(0)[1]
        gone = len(kept.idle) - len(idle)
        fits = left + retain <= manager.memory_max_bytes and room - left >= required
        if got is not None and got != fits:
            yield f"sequence {seed}: whether there is room is {got}"
        if got is None and (manager.disk.flush.call_count, manager._prefill_reserve_bytes) != (
            1,
            reserve,
        ):
            yield f"sequence {seed}: {manager._prefill_reserve_bytes} bytes are set aside"
        if kept.names() != [name for name, _ in idle] or manager.resident_bytes() != left:
            yield f"sequence {seed}: {kept.names()} are kept, not {[name for name, _ in idle]}"
        if len(manager.hash_table) != sum(b.block_hash is not None for b in manager.pool):
            yield f"sequence {seed}: blocks that were given up are known"
        counted = manager.stats.evictions, manager.stats.memory_evictions
        if counted != (gone, gone):
            yield f"sequence {seed}: of {gone} that are given up {counted} are counted"
        if cleared.call_count != (gone > 0 or room - left < required):
            yield f"sequence {seed}: free buffers are given back {cleared.call_count} times"
    manager.prepare_prefill(-5)
    if manager._prefill_reserve_bytes != 0:
        yield "less than nothing is set aside"


def _arrays() -> Iterator[str]:
    """No more arrays than a device takes; blocks that are not held make room for others."""
    each = 2 * _LAYERS
    first, second = list(range(8)), list(range(50, 62))
    for most, hold in itertools.product((0, 1, each - 1, each, 9, 11, 12, 20, 400), (True, False)):
        manager = pool_of()
        manager._max_pool_tensors = most
        fit = most // each if most else manager.num_blocks
        held = manager.store_kv_blocks(first, *keys_and_values(len(first)))
        if [block.token_ids for block in held] != _blocks_of(first)[:fit]:
            yield f"with {most} arrays {len(held)} blocks of 2 are kept"
        count = len(held)
        if not hold:
            manager.release(held)
        new = manager.store_kv_blocks(second, *keys_and_values(len(second)))
        room = fit - count if hold else fit
        if [block.token_ids for block in new] != _blocks_of(second)[:room]:
            yield f"with {most} arrays, {count} blocks there, {len(new)} more of 3 are kept"
        gone = 0 if hold else max(0, count + len(new) - fit)
        if manager.stats.memory_evictions != gone or len(manager.hash_table) > fit:
            yield f"with {most} arrays {manager.stats.memory_evictions} blocks are given up"
        left = manager.lookup_prefix(first)[1] // BLOCK
        # The first block of a prompt goes first, without which no other is found.
        if left != (0 if gone else count):
            yield f"with {most} arrays {left} blocks are found after {gone} were given up"


def _blocks_of(tokens: Sequence[int]) -> list[tuple[int, ...]]:
    return [tuple(tokens[n : n + BLOCK]) for n in range(0, len(tokens), BLOCK)]
