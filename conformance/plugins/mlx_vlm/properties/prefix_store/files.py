"""What mlx-vlm keeps of prefixes in files: blocks and snapshots, which are found again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_vlm.models.cache import KVCache

from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat

apc: Any = compat.part("apc")

FILE = "mlx_vlm/apc.py"
# Tokens of a block, blocks of one file, layers, heads and elements of keys and of values.
_BLOCK, _SHARD, _LAYERS, _HEADS, _SIZES = 3, 2, 2, 2, (4, 6)
PLENTY = 1 << 30
# Tokens of the longest prompt: as many as a file of blocks has room for.
LONGEST = 256

# The functions that write and read files.
READERS = (
    *("DiskBlockStore.*", "_read_safetensors_*", "_safetensors_*", "_mlx_array_*", "_numel"),
    *("_safe_namespace", "_decode_*", "_encode_*", "_mlx_dtype_*"),
)


def file_properties() -> list[Property]:
    """Those of ``DiskBlockStore``, and of the functions that read its files."""
    both = (*READERS, "_restore_empty_*", "_extract_empty_*", "_checkpoint_match_len", "_dense_*")
    return [
        Property("files: blocks", FILE, both, _blocks),
        Property("files: snapshots", FILE, both, _snapshots),
    ]


class Folder:
    """A folder of files, with a store that can be opened anew."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory()
        self.store: Any = None

    def __enter__(self) -> Folder:
        # Of failed writes, which are meant here.
        apc.logger.disabled = True
        return self

    def __exit__(self, *_: object) -> None:
        apc.logger.disabled = False
        if self.store is not None:
            self.store.close()
        self._folder.cleanup()

    def open(self, most: int | None = None, queue: float = 1, **more: Any) -> Any:
        """A store of what is there; the one before is closed."""
        if self.store is not None:
            self.store.close()
        settings = {"disk_queue_max_gb": queue, "disk_shard_max_blocks": _SHARD}
        self.store = apc.DiskBlockStore(
            Path(self._folder.name), "a b/c", max_bytes=most, overrides=settings, **more
        )
        return self.store

    def files(self) -> list[Path]:
        """All files of prefixes."""
        return sorted(self.store.dir.iterdir())


def _layers(seed: int, tokens: int, dtype: mx.Dtype = mx.float32) -> tuple[list[Any], list[Any]]:
    """Keys and values of each layer: ``[1, heads, tokens, size]``; fewer tokens are the first."""
    drawn = np.random.default_rng(seed)
    shapes = [(_LAYERS, 1, _HEADS, LONGEST, size) for size in _SIZES]
    both = [mx.array(drawn.normal(size=shape).astype(np.float32)).astype(dtype) for shape in shapes]
    keys, values = ([mx.contiguous(layer[..., :tokens, :]) for layer in kind] for kind in both)
    mx.eval(keys, values)
    return keys, values


def _made(seed: int, numbers: Sequence[int]) -> list[Any]:
    """Blocks of a prompt, each with a hash of its own."""
    return [
        apc._DiskLayerMajorBlock(
            block_hash=1000 * seed + n + 1,
            parent_hash=1000 * seed + n,
            extra_hash=seed - 5,
            token_ids=tuple(range(n * _BLOCK, (n + 1) * _BLOCK)),
            source_block_idx=n,
        )
        for n in numbers
    ]


def save(store: Any, seed: int, numbers: Sequence[int], dtype: mx.Dtype = mx.float32) -> list[Any]:
    """Write these blocks of a prompt."""
    blocks = _made(seed, numbers)
    tokens = (max(numbers) + 1) * _BLOCK + 1
    store.save_layer_major_blocks(blocks, *_layers(seed, tokens, dtype), _BLOCK)
    store.flush()
    return blocks


def read_back(store: Any, seed: int, numbers: Sequence[int], dtype: mx.Dtype = mx.float32) -> str:
    """What differs of blocks that are read together from what was written."""
    blocks = _made(seed, numbers)
    tokens = (max(numbers) + 1) * _BLOCK + 1
    found = store.load_layer_major_prefix([block.block_hash for block in blocks])
    if found is None:
        return f"blocks {list(numbers)} are not found"
    columns = [n * _BLOCK + i for n in numbers for i in range(_BLOCK)]
    for kind, written, read in zip(
        ("keys", "values"), _layers(seed, tokens, dtype), found, strict=False
    ):
        if len(read) != _LAYERS:
            return f"{len(read)} layers are read, {_LAYERS} were written"
        for one, other in zip(written, read, strict=True):
            part = one[..., mx.array(columns), :]
            if other.dtype != dtype or not mx.array_equal(part, other[..., : len(columns), :]):
                return f"{kind} of blocks {list(numbers)} are not what was written"
    said = [
        (tuple(map(int, str(m["token_ids"]).strip("[]").split(","))), int(m["extra_hash"]))
        for m in found[2]
    ]
    if said != [(block.token_ids, block.extra_hash) for block in blocks]:
        return f"blocks {list(numbers)} are said to be of other tokens: {said}"
    return ""


def counts(folder: Folder, blocks: int, snapshots: int) -> Iterator[str]:
    """Where the store's own counts are others than these, and than its files."""
    store, files = folder.store, folder.files()
    size = sum(file.stat().st_size for file in files)
    found = (store.num_blocks_indexed, store.num_exact_indexed, store.disk_bytes)
    if found != (blocks, snapshots, size):
        yield f"blocks, snapshots, bytes are {found}, there are {(blocks, snapshots, size)}"
    if store.pending_bytes:
        yield f"{store.pending_bytes} bytes are to be written, and none are"


def _blocks() -> Iterator[str]:
    """Prefixes of one prompt and of another, parts of them, each dtype; in a new store, too."""
    with Folder() as folder:
        store = folder.open()
        save(store, 1, range(5))
        save(store, 2, range(3))
        save(store, 3, [0, 2, 4], mx.bfloat16)
        for _ in range(2):
            for seed, numbers in ((1, range(5)), (1, range(1)), (1, range(3)), (2, range(3))):
                if wrong := read_back(store, seed, numbers):
                    yield wrong
            if wrong := read_back(store, 1, [3, 4]) or read_back(store, 3, [0, 2, 4], mx.bfloat16):
                yield wrong
            yield from counts(folder, 11, 0)
            if store.load_layer_major_prefix([1001, 77]) or store.load_layer_major_prefix([]):
                yield "blocks are found that were never written"
            if not store.has(1001) or store.has(1000):
                yield "other blocks are known than were written"
            sizes = [store.prefix_cache_bytes([1001, 1002]), store.prefix_cache_bytes([77])]
            all_of = store.prefix_cache_bytes([1001 + n for n in range(5)])
            one = [f.stat().st_size for f in folder.files() if f == store._index[1001][0]]
            if sizes != [*one, 0] or not sum(one) < all_of < store.disk_bytes:
                yield f"bytes of prefixes are {sizes}, of the whole {all_of}"
            store = folder.open()
        names = [file.name for file in folder.files()]
        keys, values = _layers(1, _BLOCK)
        store.save_layer_major_blocks([], keys, values, _BLOCK)
        store.save_layer_major_blocks(_made(9, [0]), [], values, _BLOCK)
        store.save_layer_major_blocks(_made(9, [0]), keys, [], _BLOCK)
        store.flush()
        before = {file: file.stat().st_mtime_ns for file in folder.files()}
        save(store, 1, range(5))
        if [f.name for f in folder.files()] != names or before != {
            file: file.stat().st_mtime_ns for file in folder.files()
        }:
            yield "blocks that are kept are written again"
        yield from counts(folder, 11, 0)
        if store.dir.name != "a_b_c":
            yield f"the folder is {store.dir.name}"


def cache_of(seed: int, tokens: int, dtype: mx.Dtype = mx.float32) -> list[Any]:
    """A prompt's plain caches, with room behind the tokens."""
    caches = []
    for keys, values in zip(*_layers(seed, tokens, dtype), strict=True):
        cache = KVCache()
        cache.update_and_fetch(keys, values)
        mx.eval(cache.state)
        caches.append(cache)
    return caches


def _snapshots() -> Iterator[str]:
    """The longest that a prompt begins with, of its key; plain caches may be cut at a block."""
    with Folder() as folder:
        store = folder.open()
        prompt = list(range(20, 40))
        kept = {(41, 7): 12, (42, 7): 15, (43, 8): 18}
        for (name, key), count in kept.items():
            store.save_exact_cache(
                name, prompt[:count], key, cache_of(name, count), synchronous=True
            )
        store.save_exact_cache(44, prompt[:4], 9, cache_of(44, 4, mx.bfloat16))
        store.flush()
        for _ in range(2):
            yield from _found(store, prompt)
            yield from counts(folder, 0, 4)
            yield from _loaded(store, prompt)
            store = folder.open()
        if store.save_exact_cache(45, [], 7, cache_of(45, 3)) or store.save_exact_cache(
            45, [1], 7, []
        ):
            yield "a snapshot of nothing is kept"


def _found(store: Any, prompt: list[int]) -> Iterator[str]:
    other = [*prompt[:8], 99, *prompt[9:]]
    either = {41, 42}
    asked: list[tuple[list[int], dict[str, Any], tuple[set[int], int] | None]] = [
        (prompt, {"extra_hash": 7}, ({42}, 15)),
        (prompt, {"extra_hash": 8}, ({43}, 18)),
        (prompt, {"extra_hash": 6}, None),
        (prompt, {}, None),
        (prompt[:16], {"extra_hash": 7}, ({42}, 15)),
        (prompt[:15], {"extra_hash": 7, "block_size": 16}, ({41}, 12)),
        (prompt[:13], {"extra_hash": 7, "block_size": 16}, ({41}, 12)),
        (prompt[:12], {"extra_hash": 7, "block_size": 16}, None),
        (prompt[:12], {"extra_hash": 7, "block_size": 4}, (either, 8)),
        (other, {"extra_hash": 7, "block_size": 3}, (either, 6)),
        (other, {"extra_hash": 7, "block_size": 8}, (either, 8)),
        (prompt, {"extra_hash": 7, "block_size": 16, "max_prefix_tokens": 13}, ({41}, 12)),
        (prompt, {"extra_hash": 7, "max_prefix_tokens": 0}, ({42}, 15)),
        (prompt, {"extra_hash": 7, "min_prefix_tokens": 14}, ({42}, 15)),
        (prompt, {"extra_hash": 7, "min_prefix_tokens": 15}, None),
        (prompt[:2], {"extra_hash": 7, "block_size": 1, "min_prefix_tokens": 1}, None),
    ]
    for tokens, options, wanted in asked:
        got = store.find_exact_prefix(tokens, **options)
        right = (
            got is None if wanted is None else got and got[0] in wanted[0] and got[1] == wanted[1]
        )
        if not right:
            yield f"of {len(tokens)} tokens with {options} is found {got}, kept is {wanted}"


def _loaded(store: Any, prompt: list[int]) -> Iterator[str]:
    cases: tuple[tuple[int, int, int, int | None, mx.Dtype], ...] = (
        (42, 7, 15, None, mx.float32),
        (42, 7, 15, 6, mx.float32),
        (42, 7, 15, 15, mx.float32),
        (43, 8, 18, 1, mx.float32),
        (44, 9, 4, None, mx.bfloat16),
    )
    for name, key, count, cut, dtype in cases:
        got = store.load_exact_cache(name, prefix_len=cut)
        length = count if cut is None else cut
        if got is None or got[:2] != (tuple(prompt[:length]), key):
            yield f"snapshot {name} cut at {cut} is of {got and got[:2]}"
            continue
        for right, wrong in zip(cache_of(name, count, dtype), got[2], strict=True):
            for attribute in ("keys", "values"):
                one, other = getattr(right, attribute), getattr(wrong, attribute)
                same = mx.array_equal(one[..., :length, :], other[..., :length, :])
                if wrong.offset != length or not same or other.dtype != dtype:
                    yield f"{attribute} of snapshot {name} cut at {cut} are not what was kept"
        path = store._exact_index[name]
        if store.exact_cache_bytes(name) != path.stat().st_size or store.exact_cache_bytes(1):
            yield f"the bytes of snapshot {name} are {store.exact_cache_bytes(name)}"
    for name, cut in ((42, 16), (42, 0), (42, -1), (1, None)):
        if store.load_exact_cache(name, prefix_len=cut) is not None:
            yield f"snapshot {name} cut at {cut} is loaded"
