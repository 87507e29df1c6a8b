"""Which of mlx-vlm's files of prefixes are given up, and what comes of those that are damaged."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import mlx.core as mx

from conformance.core.properties import Property
from conformance.plugins.mlx_vlm.properties.prefix_store.files import (
    FILE,
    LONGEST,
    PLENTY,
    READERS,
    Folder,
    apc,
    cache_of,
    counts,
    read_back,
    save,
)
from conformance.plugins.mlx_vlm.properties.prefix_store.keys import environment


def file_end_properties() -> list[Property]:
    """Those of ``DiskBlockStore`` where files come and go."""
    return [
        Property("files: given up", FILE, READERS, _given_up),
        Property("files: room", FILE, READERS, _room),
        Property("files: damaged", FILE, READERS, _damaged),
        Property("files: bytes of unreadable ones", FILE, READERS, _unreadable),
        Property("files: queue", FILE, READERS, _queue),
        Property("files: in pieces", FILE, READERS, _in_pieces),
    ]


def _age(store: Any, ages: dict[int, float]) -> None:
    """Let the files of these blocks or snapshots be used so many seconds ago."""
    now = time.time()
    for name, age in ages.items():
        path = store._index[name][0] if name in store._index else store._exact_index[name]
        os.utime(path, (now - age, now - age))


def _given_up() -> Iterator[str]:
    """The prompt that was used first goes first, its last blocks before its first ones."""
    with Folder() as folder:
        store = folder.open()
        save(store, 1, range(5))
        save(store, 2, range(4))
        tokens = range(LONGEST)
        store.save_exact_cache(41, tokens, 7, cache_of(41, LONGEST), synchronous=True)
        first, second = range(1001, 1006), range(2001, 2005)
        sizes = {f: f.stat().st_size for f in folder.files()}
        whole = sum(sizes.values())
        # Prompt 1 was used last, but for its first blocks: the oldest use of any part counts.
        _age(store, {1001: 300, 1003: 10, 1005: 20, 2001: 100, 2003: 100, 41: 200})
        paths = [store._index[n][0] for n in (1005, 1003, 1001)] + [store._exact_index[41]]
        for number, path in enumerate(paths, start=1):
            size = sizes[path]
            # 90 % of the bound are what is left of a sweep.
            store.max_bytes = int((store.disk_bytes - size) / 0.9) + 2
            store._maybe_evict()
            left = {f for f in sizes if f.exists()}
            if left != set(sizes) - set(paths[:number]):
                yield f"sweep {number} leaves {len(left)} files, by their last use others"
                return
            if store.disk_bytes != sum(sizes[f] for f in left) or store.evictions != number:
                yield f"after sweep {number} {store.disk_bytes} bytes, {store.evictions} given up"
            known = {n for n in (*first, *second) if store.has(n)}
            if known != {n for n in (*first, *second) if n in store._index} or (
                store._index and not {p for p, _ in store._index.values()} <= left
            ):
                yield "blocks of files that are gone are known"
        if store.num_exact_indexed or store.num_blocks_indexed != 4:
            yield f"{store.num_blocks_indexed} blocks and {store.num_exact_indexed} snapshots left"
        if store.disk_bytes >= whole or read_back(store, 2, range(4)):
            yield "what is left is not what was written"
        store.max_bytes = store.disk_bytes
        if store._maybe_evict():
            yield "something is given up where nothing must be"


def _room() -> Iterator[str]:
    """What is written keeps the bound; what was read last stays."""
    with Folder() as folder:
        store = folder.open()
        save(store, 1, range(2))
        size = store.disk_bytes
        store = folder.open(most=int(3.5 * size))
        save(store, 2, range(2))
        save(store, 3, range(2))
        _age(store, {1001: 300, 2001: 200, 3001: 100})
        if read_back(store, 1, range(2)):
            yield "what was kept is not read"
        save(store, 4, range(2))
        known = [seed for seed in (1, 2, 3, 4) if store.has(1000 * seed + 1)]
        if known != [1, 3, 4] or store.evictions != 1 or store.disk_bytes > store.max_bytes:
            yield f"with room for three prompts {known} are kept, {store.evictions} given up"
        yield from counts(folder, 6, 0)
        store.save_exact_cache(41, range(4), 7, cache_of(41, 4))
        store.save_exact_cache(42, range(4), 8, cache_of(42, 4))
        store.flush()
        _age(store, {41: 50, 42: 400})
        if store.load_exact_cache(42) is None:
            yield "a snapshot that was kept is not read"
        if time.time() - store._exact_index[42].stat().st_mtime > 100:
            yield "a snapshot that is read is not used by that"
        store.max_bytes = 1
        save(store, 5, range(2))
        if store.disk_bytes or folder.files() or store.num_blocks_indexed:
            yield "more is kept than there is room for"


def _damaged() -> Iterator[str]:
    """Files that are cut off, foreign or gone are no prefixes."""
    with Folder() as folder:
        store = folder.open()
        save(store, 1, range(5))
        store.save_exact_cache(41, range(4), 7, cache_of(41, 4), synchronous=True)
        gone, cut = store._index[1005][0], store._index[1003][0]
        beside = [store.dir / name for name in ("shard_12.safetensors", "x.safetensors")]
        beside.append(store.dir / f"{gone.stem}.12-34.safetensors")
        beside += [store.dir / f"{n}.safetensors" for n in range(12)]
        kept = store.dir / "notes.txt"
        for path in (*beside, kept):
            path.write_bytes(b"0")
        gone.unlink()
        if store.load_layer_major_prefix(list(range(1001, 1006))) is not None or store.has(1005):
            yield "blocks of a file that is gone are known"
        cut.write_bytes(cut.read_bytes()[:11])
        folder.open()
        store = folder.open()  # the first one counts what it removes
        if [n for n in range(1001, 1006) if store.has(n)] != [1001, 1002] or cut.exists():
            yield "blocks of a file that is cut off are known"
        if any(path.exists() for path in beside) or not kept.exists():
            yield "a file that was written in part is kept, or one of something else is gone"
        kept.unlink()
        yield from counts(folder, 2, 1)
        for file in folder.files():
            file.unlink()
        store.dir.rmdir()
        if store.load_exact_cache(41) or store.find_exact_prefix(range(9), extra_hash=7):
            yield "a snapshot of a folder that is gone is found"
        save(store, 2, range(2))
        yield from counts(folder, 2, 0)
        if wrong := read_back(store, 2, range(2)):
            yield wrong


def _unreadable() -> Iterator[str]:
    """A file that cannot be read is removed, and takes no room."""
    with Folder() as folder:
        save(folder.open(), 1, range(2))
        for file in folder.files():
            file.write_bytes(b"0" * 11)
        store = folder.open()
        there = sum(file.stat().st_size for file in folder.files())
        if store.disk_bytes != there:
            yield f"{there} bytes are there, {store.disk_bytes} are counted"


def _queue() -> Iterator[str]:
    """Writes are counted, whether at once or later; those that fail, too."""
    for queue in (1.0, 0.0):
        with Folder() as folder:
            store = folder.open(queue=queue)
            done: list[tuple[str, int]] = []
            store.set_write_callbacks(
                lambda n, done=done: done.append(("written", n)),
                lambda n, done=done: done.append(("failed", n)),
            )
            save(store, 1, range(3))
            if not queue and store._q.qsize():
                yield "something is queued where nothing may be"
            store.save_exact_cache(41, range(4), 7, cache_of(41, 4))
            store.flush()
            failed = store.save_exact_cache(42, [1], 7, [object()], synchronous=True)
            if failed or done != [("written", 2), ("written", 1), ("written", 1), ("failed", 1)]:
                yield f"with a queue of {queue} GB the writes are {done}"
            if store._in_flight or store.queue_max_bytes != int(queue * PLENTY):
                yield f"{len(store._in_flight)} writes are not ended"
            yield from counts(folder, 3, 1)
            workers = list(store._workers)
            store.close()
            folder.store = None
            if len(workers) != 1 or any(worker.is_alive() for worker in workers):
                yield "a thread writes after the end"


def _metadata(file: Path) -> dict[str, str]:
    _, found = cast("tuple[Any, dict[str, str]]", mx.load(str(file), return_metadata=True))
    return found


def _in_pieces() -> Iterator[str]:
    """Each file says which piece of how many it is; room is left behind the tokens of one."""
    with Folder() as folder:
        store = folder.open()
        save(store, 1, range(5))
        save(store, 2, range(2))
        said = sorted(
            (int(about["segment_count"]), int(about["segment_index"]))
            for about in (_metadata(file) for file in folder.files())
        )
        if said != [(1, 0), (3, 0), (3, 1), (3, 2)]:
            yield f"files say that they are pieces {said}"
    # A store that never gives freed buffers back meanwhile.
    with environment(APC_DISK_RESTORE_CLEAR_EVERY="0"), Folder() as folder:
        save(folder.open(), 1, range(5))
        if wrong := read_back(folder.store, 1, range(5)):
            yield wrong
    pad = apc.DiskBlockStore._pad_layer_major_arrays
    if pad([], []) != ([], []):
        yield "room is left behind no layers"
    # As caches grow: in steps of 256, with room for one token at least.
    for tokens, room in ((3, 256), (255, 256), (256, 512), (257, 512)):
        for dtype in (mx.float32, mx.bfloat16):
            both = [[mx.full((1, 2, tokens, s), s + n, dtype) for n in range(3)] for s in (4, 6)]
            for arrays, padded in zip(both, pad(*both), strict=True):
                for one, other in zip(arrays, padded, strict=True):
                    wanted = mx.pad(one, [(0, 0), (0, 0), (0, room - tokens), (0, 0)])
                    if other.dtype != dtype or not mx.array_equal(other, wanted):
                        yield f"{tokens} tokens get room of {other.shape}, {other.dtype}"
    odd = mx.ones((2, 3)), mx.ones((1, 2, 3, 4))
    kept = pad([odd[1], odd[0]], [odd[1], odd[1]])
    if kept[0][0].shape != (1, 2, 256, 4) or kept[0][1] is not odd[0] or kept[1][1] is not odd[1]:
        yield "room is left in arrays of other axes"
