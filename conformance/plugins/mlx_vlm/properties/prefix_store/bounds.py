"""What mlx-vlm's pool keeps where its bytes, blocks or arrays are few, in memory and in files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import mlx.core as mx

from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat
from conformance.plugins.mlx_vlm.properties.prefix_store import samples
from conformance.plugins.mlx_vlm.properties.prefix_store.keys import environment
from conformance.plugins.mlx_vlm.properties.prefix_store.memory import (
    BLOCK,
    TOKEN,
    apc,
    keys_and_values,
    plain_caches,
    pool_of,
)

caches: Any = compat.part("models.cache")
storage: Any = compat.part("apc_storage")
turboquant: Any = compat.part("turboquant")

_FILE = "mlx_vlm/apc.py"
_TOKENS = list(range(4 * BLOCK))
_GB = 1 << 30


def store_bound_properties() -> list[Property]:
    """Those of ``APCManager`` with few of something."""
    room = ("APCManager.*", "_clone_layer_major_*", "apc_lookup_plan")
    made = ("*.__init__", "default_disk_path")
    streams = ("_fill_stream_*", "make_warm_kv_cache_from_layers")
    return [
        Property("store: few bytes", _FILE, room, _bytes),
        Property("store: files of what memory has no room for", _FILE, room, _files),
        Property("store: long prompts", _FILE, room, _long),
        Property("store: what is left out", _FILE, room, _left_out),
        Property("store: memory of a device", _FILE, ("APCManager.__init__", "_metal_*"), _device),
        Property("store: bounds of the environment", _FILE, made, _environment),
        Property("store: streams of layers", _FILE, streams, _streams),
        Property("store: files of snapshots", _FILE, room, _admitted),
        Property("store: bytes of arrays", "mlx_vlm/apc_storage.py", ("_array_bytes",), _arrays),
    ]


def _bytes() -> Iterator[str]:
    """So many blocks as they are enough for, the first ones."""
    each = BLOCK * TOKEN
    for most in (0, 1, each - 1, each, int(2.5 * each), 9 * each):
        manager = pool_of()
        manager.memory_max_bytes = most
        kept = manager.store_kv_blocks(_TOKENS, *keys_and_values(len(_TOKENS)))
        count = min(4, most // each)
        want = [tuple(_TOKENS[n * BLOCK : (n + 1) * BLOCK]) for n in range(count)]
        stats = manager.stats
        if [block.token_ids for block in kept] != want or manager.resident_bytes() > most:
            yield f"of {most} bytes {len(kept)} blocks are kept"
        if (stats.stores, stats.stored_tokens, stats.pool_used) != (count, count * BLOCK, count):
            yield f"of {most} bytes {stats.stores} blocks are counted"
        if manager.memory_max_bytes and [block.ref_cnt for block in kept] != [1] * count:
            yield "blocks that are kept are not held once"


def _short_of() -> dict[str, tuple[Callable[[Any], None], int]]:
    """What a pool has too little of, and the blocks of four that memory keeps."""

    def few_bytes(manager: Any) -> None:
        manager.memory_max_bytes = 2 * BLOCK * TOKEN

    def few_arrays(manager: Any) -> None:
        manager._max_pool_tensors = 4

    def few_blocks(manager: Any) -> None:
        while manager._free_head is not manager._free_tail:
            manager._acquire_existing(manager._free_head)

    def no_memory(manager: Any) -> None:
        manager.memory_max_bytes = 0

    return {
        "bytes": (few_bytes, 2),
        "arrays": (few_arrays, 1),
        "blocks": (few_blocks, 1),
        "memory": (no_memory, 0),
    }


def _files() -> Iterator[str]:
    """All blocks are in files, and found there, whatever memory keeps."""
    for what, (shorten, count) in _short_of().items():
        with TemporaryDirectory() as folder:
            manager = pool_of(folder)
            shorten(manager)
            try:
                kept = manager.store_kv_blocks(
                    _TOKENS, *keys_and_values(len(_TOKENS)), extra_hash=5
                )
                manager.disk.flush()
                if len(kept) != count:
                    yield f"with few {what} {len(kept)} blocks are kept in memory"
                found, length = manager.lookup_prefix_disk_cache(
                    _TOKENS, extra_hash=5, allow_memory_overlap=True
                )
                if length != len(_TOKENS) or manager.disk.num_blocks_indexed != 4:
                    yield f"with few {what} {length} tokens are found in files"
                for cache, keys in zip(found or (), keys_and_values(length)[0], strict=False):
                    if not mx.array_equal(cache.state[0], keys):
                        yield f"with few {what} files hold other keys"
            finally:
                manager.close()


def _long() -> Iterator[str]:
    """In one piece where there is a bound: whole blocks, up to the tokens that are left free."""
    for bound, guard, kept in ((0, 1, 0), (12, 1, 12), (12, 5, 8), (13, 1, 0)):
        with TemporaryDirectory() as folder:
            manager = pool_of(folder)
            manager._layer_major_memory_min_tokens = bound if guard == 1 else kept
            manager.exact_cache_guard_tokens = guard
            try:
                blocks = manager.store_kv_blocks(
                    _TOKENS[:-3], *keys_and_values(len(_TOKENS) - 3), extra_hash=5
                )
                manager.disk.flush()
                lengths = [len(entry.token_ids) for entry in manager._exact_cache.values()]
                if lengths != ([kept] if kept else []) or len(blocks) != (0 if kept else 3):
                    yield f"with a bound of {bound} pieces of {lengths} tokens are kept"
                if manager.stats.exact_stores != len(lengths):
                    yield f"{manager.stats.exact_stores} pieces are counted"
                manager.release(blocks)
                manager.clear()
                found = manager.lookup_prefix_disk_cache(_TOKENS, extra_hash=5)
                if found[1] != 12:
                    yield f"of a prompt in one piece {found[1]} tokens are found in files"
            finally:
                manager.close()


def _left_out() -> Iterator[str]:
    """Each time it is counted; of what cannot be read nothing is found."""
    with TemporaryDirectory() as folder:
        manager = pool_of(folder)
        manager.store_exact_cache(_TOKENS[:6], plain_caches(6), extra_hash=3)
        manager.release(manager.store_kv_blocks(_TOKENS, *keys_and_values(len(_TOKENS))))
        manager.disk.flush()
        try:
            ways: dict[str, Callable[[], Any]] = {
                "a snapshot": lambda: manager.lookup_exact_cache(_TOKENS, extra_hash=3),
                "blocks of files": lambda: manager.lookup_prefix_disk_cache(
                    _TOKENS, allow_memory_overlap=True
                ),
            }
            for what, ask in ways.items():
                manager.stats.memory_skips = 5
                with patch.object(manager, "_make_room", lambda *_, **__: False):
                    got = ask()
                if got != (None, 0) or manager.stats.memory_skips != 6:
                    yield f"without room {what}: {got}, {manager.stats.memory_skips} left out"
            with patch.object(manager.disk, "load_layer_major_prefix", lambda _: None):
                if (got := ways["blocks of files"]()) != (None, 0):
                    yield f"of files that cannot be read {got} is found"
            with patch.object(apc, "_clone_prompt_cache_for_apc", lambda *_, **__: None):
                if (got := ways["a snapshot"]()) != (None, 0):
                    yield f"of a snapshot that has no copy {got} is found"
        finally:
            manager.close()
    with TemporaryDirectory() as folder:
        single = pool_of(folder, block_size=1)
        single.release(single.store_kv_blocks([7], *keys_and_values(1)))
        single.disk.flush()
        got = single.lookup_prefix_disk_cache([7], allow_memory_overlap=True)[1]
        single.close()
        if got != 1:
            yield f"of one token in files {got} are found"
    if (got := pool_of().lookup_prefix_disk_cache(_TOKENS)) != (None, 0):
        yield f"without files {got} is found in them"
    single = pool_of(block_size=1)
    single.release(single.store_kv_blocks([7], *keys_and_values(1)))
    plan = apc.apc_lookup_plan(
        single,
        [7, 8],
        extra_hash=0,
        apc_mode="block",
        safe_lookup_min=0,
        suffix_is_text_only=lambda _: True,
        prefix_has_media=lambda _: False,
    )
    if plan is None or plan["prefix_len"] != 1:
        yield f"of a prompt of two tokens {plan} is found"


def _device() -> Iterator[str]:
    """A tenth of what the device recommends: at most 8 GB to keep, at least 1 GB left free."""
    for known, most, free in (
        (None, _GB, _GB),
        (5 * _GB, _GB // 2, _GB),
        (50 * _GB, 5 * _GB, 5 * _GB),
        (200 * _GB, 8 * _GB, 20 * _GB),
    ):
        with environment(), patch.object(apc, "_metal_working_set_bytes", lambda n=known: n):
            manager = apc.APCManager(num_blocks=1)
        got = manager._working_set_bytes, manager.memory_max_bytes, manager.memory_reserve_bytes
        if got != (known, most, free):
            yield f"of {known} bytes that a device recommends the bounds are {got}"
    answers: list[tuple[dict[str, Any], int | None]] = [
        ({"return_value": {"max_recommended_working_set_size": 7.0}}, 7),
        ({"return_value": {}}, None),
        ({"side_effect": RuntimeError}, None),
        ({"side_effect": AttributeError}, None),
    ]
    for answer, size in answers:
        with patch.object(mx, "device_info", **answer):
            found = apc._metal_working_set_bytes()
        if found != size:
            yield f"of a device that says {answer} {found} bytes are known"


def _environment() -> Iterator[str]:
    """Each bound that only a variable sets: what it is without one, and that 0 is a value."""
    whole = {"0": 0, "-3": 0, "7": 7}
    free = {"0": 0, "1.5": 3 * _GB // 2}
    for variable, attribute, default, values in (
        ("APC_MAX_POOL_TENSORS", "_max_pool_tensors", 450000, whole),
        ("APC_LAYER_MAJOR_MEMORY_MIN_TOKENS", "_layer_major_memory_min_tokens", 50000, whole),
        ("APC_EXACT_MIN_TOKENS", "exact_cache_min_tokens", 16, {"0": 1, "7": 7}),
        ("APC_DISK_MIN_FREE_RAM_GB", "_disk_min_free_ram_bytes", 2 * _GB, free),
    ):
        with environment():
            found = {"none": getattr(apc.APCManager(num_blocks=1), attribute)}
        for value in values:
            with environment(**{variable: value}):
                found[value] = getattr(apc.APCManager(num_blocks=1), attribute)
        if found != {"none": default, **values}:
            yield f"of {variable} the bounds are {found}"
    stores: list[Any] = []
    for variables in ({}, {"MLX_VLM_CACHE_HOME": "a"}):
        with environment(**variables):
            stores.append(apc.default_disk_path())
    for variables in ({}, {"APC_DISK_RESTORE_CLEAR_EVERY": "7", "APC_DISK_HEADER_CACHE": "8"}):
        with environment(**variables), TemporaryDirectory() as folder:
            store = apc.DiskBlockStore(Path(folder))
            stores.append((store.dir.name, store._restore_clear_every, store._header_cache_max))
            store.close()
    homes = Path.home() / ".cache" / "mlx-vlm" / "apc", Path("a") / "apc"
    if stores != [*homes, ("default", 1, 4), ("default", 7, 8)]:
        yield f"folders and bounds of stores are {stores}"


def _streams() -> Iterator[str]:
    """Each layer a cache that was fed with it, quantized as is asked but for the last one."""
    layers = [mx.random.normal((1, 2, 5, 32), key=mx.random.key(n)) for n in range(3)]
    configs: list[tuple[Any, Callable[[], Any]]] = [
        (None, caches.KVCache),
        ({"bits": 8, "group_size": 32}, lambda: caches.QuantizedKVCache(group_size=32, bits=8)),
        ({"bits": 3.5}, lambda: turboquant.TurboQuantKVCache(bits=3.5)),
    ]
    for config, make in configs:
        made = apc.make_warm_kv_cache_from_layers(
            layers, [-layer for layer in layers], 5, kv_quant_config=config
        )
        for layer, cache, fed in zip(layers, made, (make(), make(), caches.KVCache()), strict=True):
            fed.update_and_fetch(layer, -layer)
            if samples.content(cache) != samples.content(fed):
                yield f"with {config} a layer is {samples.content(cache)}"


def _admitted() -> Iterator[str]:
    """A file of a snapshot is read where there is room for it twice."""
    tokens = list(range(255))
    with TemporaryDirectory() as folder:
        manager = pool_of(folder, snapshots=0)
        manager.store_exact_cache(tokens, plain_caches(255), extra_hash=3)
        manager.disk.flush()
        (path,) = manager.disk.dir.iterdir()
        twice = 2 * path.stat().st_size
        try:
            for room in (twice - 1, twice):
                manager._memory_headroom = lambda room=room: room
                found = manager.lookup_exact_cache([*tokens, 1], extra_hash=3)[1]
                if found != (255 if room == twice else 0):
                    yield f"with {room} bytes free {found} tokens of a file are found"
        finally:
            manager.close()


def _arrays() -> Iterator[str]:
    """The bytes that an array says, or those of its elements."""
    for array, size in (
        (mx.zeros((2, 3)), 24),
        (SimpleNamespace(nbytes=7), 7),
        (SimpleNamespace(nbytes=None, size=3, itemsize=4), 12),
        (SimpleNamespace(size=5, itemsize=2), 10),
        (object(), 0),
    ):
        if (got := storage._array_bytes(array)) != size:
            yield f"{array} has {got} bytes"
