"""How mlx-vlm reads blocks of its files: all files layer by layer, or one file after the other."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import mlx.core as mx

from conformance.core.properties import Property
from conformance.plugins.mlx_vlm.properties.prefix_store.files import FILE, Folder, read_back, save

# Of the files that these properties read: tokens of a block, and columns that room is made by.
_BLOCK, _STEP = 3, 256
_LAYERWISE = "_load_layer_major_prefix_segments_layerwise"

# Blocks of the prompt by their file, as they are asked for.
_Segments = Sequence[tuple[Path, list[int]]]


def store_block_properties() -> list[Property]:
    """Those of the functions that read blocks."""
    readers = (
        *("DiskBlockStore.*load_layer_major*", "DiskBlockStore._decode_block_metadata"),
        *("DiskBlockStore.*write_layer_major*", "DiskBlockStore.*save_layer_major*"),
    )
    return [
        Property("store: blocks read in two ways", FILE, readers, _two_ways),
        Property("store: room behind blocks", FILE, readers, _room),
        Property("store: files of blocks that lack a part", FILE, readers, _lacking),
        Property("store: words about a block", FILE, readers, _words),
    ]


def _ways(store: Any) -> dict[str, Callable[[], AbstractContextManager[Any]]]:
    """The first one, and what stands in where it finds nothing."""
    return {
        "layer by layer": nullcontext,
        "file by file": lambda: patch.object(store, _LAYERWISE, lambda *_, **__: None),
    }


def _names(numbers: Sequence[int]) -> list[int]:
    return [1001 + n for n in numbers]


def _two_ways() -> Iterator[str]:
    """Any blocks in their order are what was written, and their files are used by that."""
    with Folder() as folder:
        store = folder.open()
        save(store, 1, range(5))
        save(store, 2, range(3), mx.bfloat16)
        for name, way in _ways(store).items():
            for numbers in ([0], [0, 1], [0, 1, 2], range(5), [1, 2], [3, 4], [1], [4]):
                with way():
                    wrong = read_back(store, 1, numbers)
                if wrong:
                    yield f"{name}: {wrong}"
            for file in folder.files():
                os.utime(file, (0, 0))
            with way():
                wrong = read_back(store, 2, range(3), mx.bfloat16)
            used = {file for file in folder.files() if file.stat().st_mtime > time.time() - 99}
            if wrong or used != {store._index[2001 + n][0] for n in range(3)}:
                yield f"{name}: {wrong or f'{len(used)} files are used'}"
        gone = store._index[1003][0]
        gone.unlink()
        for name, way in _ways(store).items():
            store._index[1003] = gone, 0
            with way():
                if store.load_layer_major_prefix(_names(range(5))) is not None:
                    yield f"{name}: blocks are read of a file that is gone"


def _room() -> Iterator[str]:
    """Where the last file is read to its end, if it is asked for."""
    with Folder() as folder:
        store = folder.open()
        save(store, 1, range(5))
        for name, way in _ways(store).items():
            for numbers, files in (([0], 0), ([0, 1], 1), ([0, 1, 2], 0), (range(4), 1), ([1], 0)):
                for keep in (True, False):
                    with way():
                        found = store.load_layer_major_prefix(
                            _names(numbers), preserve_capacity=keep
                        )
                    whole = len(numbers) * _BLOCK
                    wanted = whole + _STEP - 2 * _BLOCK if files and keep else whole
                    sizes = {array.shape[2] for kind in found[:2] for array in kind}
                    if sizes != {wanted}:
                        yield f"{name}: of blocks {list(numbers)} {sizes} columns are read"
        older = {**store._open_shard_header(store._index[1001][0])[1], "layout": "layer_major_v1"}
        segments = [(store._index[1001][0], [0, 1])]
        for name, read in _readers(store, segments).items():
            found = _read(store, read, segments[0][0], about=older)
            if found is None or {a.shape[2] for a in found[0]} != {2 * _BLOCK}:
                yield f"{name}: a file of an older release is {found and found[0]}"


def _readers(store: Any, segments: _Segments) -> dict[str, Callable[[], Any]]:
    return {
        "layer by layer": lambda: getattr(store, _LAYERWISE)(segments, preserve_capacity=True),
        "file by file": lambda: store._load_layer_major_segment(
            *segments[-1], preserve_capacity=True
        ),
    }


def _read(
    store: Any, read: Callable[[], Any], path: Path, about: Any = None, tensors: Any = None
) -> Any:
    """What is read where the file's header, and what is in it, are others."""
    header, load = store._open_shard_header, mx.load
    given, words, start = header(path)
    changed = given if tensors is None else tensors, words if about is None else about, start

    def opened(asked: Path) -> Any:
        return changed if asked == path else header(asked)

    def loaded(asked: str) -> Any:
        held = cast("dict[str, mx.array]", load(asked))
        return {k: v for k, v in held.items() if asked != str(path) or k in changed[0]}

    with patch.object(store, "_open_shard_header", opened), patch.object(mx, "load", loaded):
        return read()


def _lacking() -> Iterator[str]:
    """Lacking an array, or something that is said of them: nothing."""
    with Folder() as folder:
        store = folder.open()
        save(store, 1, range(4))
        first, path = store._index[1001][0], store._index[1003][0]
        tensors, about, _ = store._open_shard_header(path)
        segments = [(first, [0, 1]), (path, [0, 1])]
        for name, read in _readers(store, segments).items():
            if _read(store, read, path) is None:
                yield f"{name}: nothing is read"
            for word in ("layout", "num_layers", "block_size"):
                lacks = {k: v for k, v in about.items() if k != word}
                bad = [lacks, *({**about, word: value} for value in ("x", "0", "-1"))]
                if any(_read(store, read, path, about=given) is not None for given in bad):
                    yield f"{name}: a file is read with another {word}"
            for tensor in tensors:
                lacks = {k: v for k, v in tensors.items() if k != tensor}
                if _read(store, read, path, tensors=lacks) is not None:
                    yield f"{name}: a file is read without {tensor}"
    yield from _unlike()


def _unlike() -> Iterator[str]:
    """Files of other sizes, and blocks that are not behind each other."""
    with Folder() as folder:
        store = folder.open()
        save(store, 1, range(4))
        first, path = store._index[1001][0], store._index[1003][0]
        tensors, about, start = store._open_shard_header(path)
        segments = [(first, [0, 1]), (path, [0, 1])]
        layerwise = getattr(store, _LAYERWISE)
        for word in ("num_layers", "block_size"):
            other = {**about, word: "1"}
            given = _read(
                store, lambda: layerwise(segments, preserve_capacity=True), path, about=other
            )
            if given is not None:
                yield f"files with two numbers as {word} are read together"
        for numbers in ([], [1, 0], [0, 2], [0, 0]):
            if store._load_layer_major_segment(path, numbers) is not None:
                yield f"blocks {numbers} of one file are read together"
            if layerwise([(first, [0]), (path, numbers)], preserve_capacity=True) is not None:
                yield f"blocks {numbers} of a file are read layer by layer"
        if layerwise([], preserve_capacity=True) is not None:
            yield "blocks of no file are read"
        damaged = {k: {**v, "dtype": "X"} for k, v in tensors.items()}
        for tensor in tensors:
            given = {**tensors, tensor: damaged[tensor]}
            with patch.object(store, "_open_shard_header", lambda _, t=given: (t, about, start)):
                if store._load_layer_major_segment(path, [0, 1]) is not None:
                    yield f"a file is read with {tensor} of an unknown dtype"


def _words() -> Iterator[str]:
    """Tokens and keys as texts; of words that are none, nothing."""
    with Folder() as folder:
        decode = folder.open()._decode_block_metadata
        for text, wanted in (
            ('{"token_ids": [3, 4], "extra_hash": -7, "more": 1}', ("3,4", "-7", 1)),
            ('{"token_ids": "3,4", "more": 2}', ("3,4", None, 2)),
            ('{"extra_hash": "8"}', (None, "8", None)),
            ('{"token_ids": ["x"]}', None),
            ("{", None),
            ("[]", None),
            ("", None),
        ):
            got = decode({"b1_meta": text, "b0_meta": '{"more": 9}'}, 1)
            found = tuple(map(got.get, ("token_ids", "extra_hash", "more"))) if got else None
            if found != wanted or (wanted is None and got != {}):
                yield f"of {text} is read {got}"
        save(folder.store, 1, range(3))
        path, place = folder.store._index[1002]
        held = json.loads(folder.store._open_shard_header(path)[1][f"b{place}_meta"])
        hashes = {"block_hash": 1002, "parent_hash": 1001, "extra_hash": -4}
        if held != {**hashes, "token_ids": [3, 4, 5]}:
            yield f"a file says of a block {held}"
        if decode({}, 0) != {}:
            yield "of no words something is read"
