"""Which of its files mlx-vlm's store gives up, knows again, and does not write twice."""

from __future__ import annotations

import itertools
import os
import queue
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any, cast
from unittest.mock import patch

import mlx.core as mx
import numpy as np

from conformance.core.properties import Property
from conformance.plugins.mlx_vlm.properties.prefix_store.files import (
    FILE,
    READERS,
    Folder,
    apc,
    cache_of,
    save,
)

_PROMPT, _SNAPSHOT = list(range(4)), 41


def store_upkeep_properties() -> list[Property]:
    """Those of the functions that keep the index of files, and write them."""
    return [
        Property("store: what is being written", FILE, READERS, _in_flight),
        Property("store: what cannot be given up", FILE, READERS, _stuck),
        Property("store: what is written once", FILE, READERS, _once),
        Property("store: the queue of writes", FILE, READERS, _queued),
        Property("store: files known again", FILE, READERS, _known_again),
        Property("store: headers", FILE, READERS, _headers),
        Property("store: names of files", FILE, READERS, _names),
        Property("store: waiting for a write", FILE, READERS, _waiting),
    ]


def _filled(folder: Folder) -> Any:
    store = folder.open()
    save(store, 1, range(4))
    store.save_exact_cache(_SNAPSHOT, _PROMPT, 7, cache_of(_SNAPSHOT, 4), synchronous=True)
    return store


def _in_flight() -> Iterator[str]:
    """The file of what is being written stays, whatever room there is."""
    for kept in ([1001], [1004], [_SNAPSHOT], [1001, _SNAPSHOT], [99], []):
        with Folder() as folder:
            store = _filled(folder)
            sizes = {file: file.stat().st_size for file in folder.files()}
            store._in_flight.update(dict.fromkeys(kept, Event()))
            stay = {store._index[n][0] for n in kept if n in store._index}
            stay |= {store._exact_index[n] for n in kept if n in store._exact_index}
            store.max_bytes = 1
            gone = store._maybe_evict()
            if set(folder.files()) != stay or gone != store.evictions or gone != 3 - len(stay):
                yield f"while {kept} are written, {gone} files are given up"
            if store.disk_bytes != sum(sizes[file] for file in stay):
                yield f"while {kept} are written, {store.disk_bytes} bytes are counted"
            store._in_flight.clear()


def _stuck() -> Iterator[str]:
    """What the system does not remove is left out; a file whose words are none is one alone."""
    with Folder() as folder:
        store = _filled(folder)
        files = [store._index[1003][0], store._index[1001][0], store._exact_index[_SNAPSHOT]]
        for age, file in enumerate(files):
            os.utime(file, (age, age))
        remove = Path.unlink

        def fails(path: Path, **options: Any) -> None:
            if path == files[0]:
                raise OSError
            remove(path, **options)

        size = store.disk_bytes
        lost = files[1].stat().st_size
        store.max_bytes = size - 1
        with patch.object(Path, "unlink", fails):
            gone = store._maybe_evict()
        if (gone, store.disk_bytes) != (1, size - lost) or set(folder.files()) != {
            files[0],
            files[2],
        }:
            yield f"beside a file that stays {gone} are given up, {store.disk_bytes} bytes left"
        if store.has(1001) or not store.has(1003) or store.num_exact_indexed != 1:
            yield "blocks of a file that stays are not known"
    for words in ({"segment_index": "x"}, {}, None):
        with Folder() as folder:
            store = _filled(folder)
            odd = store._exact_index[_SNAPSHOT]
            held, about = cast("tuple[Any, Any]", mx.load(str(odd), return_metadata=True))
            mx.eval(held)
            if words is None:
                odd.write_bytes(b"0")
            else:
                del about["store_id"]
                mx.save_safetensors(str(odd), held, metadata={**about, **words})
            store._disk_bytes = sum(file.stat().st_size for file in folder.files())
            os.utime(odd, (0, 0))
            store.max_bytes = store.disk_bytes - 1
            store._EVICT_LOW_WATERMARK = 1
            if store._maybe_evict() != 1 or odd.exists():
                yield f"a file with {words} that was used first is not given up first"


def _once() -> Iterator[str]:
    """What is there is known, and what is being written is not written again."""
    with Folder() as folder:
        store = _filled(folder)
        before = {file: file.stat().st_mtime_ns for file in folder.files()}
        index, exact = dict(store._index), dict(store._exact_index)
        store._index.clear()
        store._exact_index.clear()
        save(store, 1, range(4))
        again = store.save_exact_cache(_SNAPSHOT, _PROMPT, 7, cache_of(_SNAPSHOT, 4))
        if not again or (store._index, store._exact_index) != (index, exact):
            yield f"of files that are there {len(store._index)} blocks are known"
        if {file: file.stat().st_mtime_ns for file in folder.files()} != before:
            yield "files that are there are written again"
        for busy, written in (([2001, 2002], False), ([2001], True)):
            store._in_flight.update(dict.fromkeys(busy, Event()))
            save(store, 2, range(2))
            if store.has(2001) != written or (written and store._in_flight):
                yield f"while {busy} are written, both blocks are: {not written}"
            store._in_flight.clear()


class _Queue(queue.Queue[Any]):
    """Keeps what it is given, or is full."""

    full_now = False

    def put_nowait(self, item: Any) -> None:
        if self.full_now:
            raise queue.Full
        self.items = [*getattr(self, "items", []), item]


def _queued() -> Iterator[str]:
    """Up to a bound in bytes; else, and where the queue is full, it is written at once."""
    cache = cache_of(_SNAPSHOT, 4)
    size = sum(layer.nbytes for layer in cache)
    for bound, full, pending, later in (
        *((size, False, 0, True), (size - 1, False, 0, False), (2 * size, False, size, True)),
        *((2 * size - 1, False, size, False), (size, True, 0, False)),
    ):
        with Folder() as folder:
            store = folder.open()
            stand_in = _Queue()
            stand_in.full_now = full
            store.queue_max_bytes, store._pending_bytes = bound, pending
            with patch.object(store, "_q", stand_in):
                done = store.save_exact_cache(_SNAPSHOT, _PROMPT, 7, cache)
            items = getattr(stand_in, "items", [])
            state = f"with {bound} bytes, {pending} before"
            if not done or len(items) != later or (store.num_exact_indexed == 1) == later:
                yield f"{state}, {len(items)} writes wait"
            if store.pending_bytes != pending + size * later:
                yield f"{state}, {store.pending_bytes} bytes wait"
            if (_SNAPSHOT in store._in_flight) != later:
                yield f"{state}, a write is under way: {not later}"
            if items and (items[0][1], items[0][4]) != ([_SNAPSHOT], size):
                yield f"{state}, what waits is {items[0]}"
            with patch.object(apc.logger, "exception") as said:
                store._write_payload("x", [1], object())
                if said.called:
                    yield "a write that nobody waits for fails in another way"
            failed: list[int] = []
            store.set_write_callbacks(None, failed.append)
            if store._write_payload("x", [1, 2], object()) or failed != [2]:
                yield f"what is no snapshot is written, or {failed} writes fail"


def _known_again() -> Iterator[str]:
    """By what files say; of one that says nothing only its bytes are counted."""
    with Folder() as folder:
        store = _filled(folder)
        blocks, snapshot = store._index[1003][0], store._exact_index[_SNAPSHOT]
        for path, word, value, wanted in (
            (snapshot, "cache_hash", "x", (4, 0)),
            (snapshot, "cache_hash", "55", (4, 1)),
            (blocks, "block_hashes", "", (2, 1)),
            (blocks, "block_hashes", "5,x", (2, 1)),
            (blocks, "block_hashes", "5,,6,", (4, 1)),
        ):
            held, about = cast("tuple[Any, Any]", mx.load(str(path), return_metadata=True))
            mx.eval(held)
            mx.save_safetensors(str(path), held, metadata={**about, word: value})
            total = sum(file.stat().st_size for file in folder.files())
            store = folder.open()
            found = store.num_blocks_indexed, store.num_exact_indexed
            if found != wanted or store.disk_bytes != total:
                yield f"of a file whose {word} are {value} {found} are known"
        if store._index.get(6) != (blocks, 1) or store._exact_index.get(55) != snapshot:
            yield "what a file says is known of another one"
        if store._cleanup_partials() != 0:
            yield "files that are whole are removed"
        (store.dir / "x.safetensors").write_bytes(b"")
        (store.dir / "folder.safetensors").mkdir()
        if store._cleanup_partials() != 1 or not (store.dir / "folder.safetensors").is_dir():
            yield "one file that was written in part is not removed"


def _headers() -> Iterator[str]:
    """The last four that were read are remembered."""
    with Folder() as folder:
        store = folder.open()
        save(store, 1, range(12))
        paths = [store._index[1001 + 2 * n][0] for n in range(6)]
        first = store._open_shard_header(paths[0])
        for path in (*paths[1:4], paths[0], paths[4]):
            store._open_shard_header(path)
        if store._open_shard_header(paths[0]) is not first:
            yield "a header that was used is read again"
        if list(store._header_cache) != [paths[2], paths[3], paths[4], paths[0]]:
            yield f"headers of {len(store._header_cache)} files are remembered, or others"
        paths[0].write_bytes(b"0")
        store._header_cache.clear()
        if store._open_shard_header(paths[0]) is not None or store.has(1001) or not store.has(1003):
            yield "blocks of a file that cannot be read are known"


def _names() -> Iterator[str]:
    """Of 32 digits of 16, and which numbers are behind each other."""
    with Folder() as folder:
        store = folder.open()
        digits = "0123456789abcdef" * 2
        for name, shard, exact in (
            *((f"shard_{digits}", True, False), (f"exact_{digits}", False, True)),
            *((f"shard_{digits[1:]}", False, False), (f"exact_{digits}0", False, False)),
            *((f"shard_{digits[1:]}g", False, False), (f"exact_{digits[1:]}A", False, False)),
            *((f"other_{digits}", False, False), (digits, False, False)),
        ):
            path = Path(f"{name}.safetensors")
            got = [store._is_canonical_shard(path), store._is_canonical_exact(path)]
            if [*got, store._is_canonical_store_file(path)] != [shard, exact, shard or exact]:
                yield f"{name} is a file of the store: {got}"
        draw = np.random.default_rng(0)
        for _ in range(30):
            numbers = sorted(set(draw.integers(0, 12, draw.integers(0, 9)).tolist()))
            ranges = store._contiguous_ranges(numbers)
            if [n for a, b in ranges for n in range(a, b)] != numbers or any(
                end == start for (_, end), (start, _) in itertools.pairwise(ranges)
            ):
                yield f"of {numbers} the ranges are {ranges}"


class _Wait:
    """An event after which something is there, or not."""

    def __init__(self, index: dict[int, Any], path: Any) -> None:
        self._index, self._path, self.seconds = index, path, 0.0

    def wait(self, seconds: float) -> bool:
        self.seconds = seconds
        if self._path is not None:
            self._index[_SNAPSHOT] = self._path
        return self._path is not None


def _waiting() -> Iterator[str]:
    """As long as it is asked to, for what is being written."""
    with Folder() as folder:
        store = _filled(folder)
        path = store._exact_index[_SNAPSHOT]
        for there, milliseconds in ((path, 250.0), (None, 250.0), (path, 0.0)):
            store._exact_index.clear()
            wait = store._in_flight[_SNAPSHOT] = _Wait(store._exact_index, there)
            got = store.load_exact_cache(_SNAPSHOT, wait_in_flight_ms=milliseconds)
            if wait.seconds != milliseconds / 1000:
                yield f"of {milliseconds} ms it waits for {wait.seconds} s"
            if (got is not None) != (there is not None and milliseconds > 0):
                yield f"after {milliseconds} ms {got} is loaded"
        store._in_flight.clear()
        store._exact_index.clear()
        if store.load_exact_cache(_SNAPSHOT, wait_in_flight_ms=1) is not None:
            yield "what nobody writes is loaded"
        store._exact_index[_SNAPSHOT] = store.dir / "none"
        if store.exact_cache_bytes(_SNAPSHOT) != 0:
            yield "a file that is gone has bytes"
        store._index[77] = store.dir / "none", 0
        if store.prefix_cache_bytes([77, 1001]) != store._index[1001][0].stat().st_size:
            yield "blocks of a file that is gone have bytes"
