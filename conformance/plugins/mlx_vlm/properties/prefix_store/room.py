"""Room behind the tokens of what mlx-vlm reads of its files, and files that lack a part."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, cast
from unittest.mock import patch

import mlx.core as mx

from conformance.core.properties import Property
from conformance.plugins.mlx_vlm.properties.prefix_store import samples
from conformance.plugins.mlx_vlm.properties.prefix_store.entries import ENTRIES, written
from conformance.plugins.mlx_vlm.properties.prefix_store.files import FILE, READERS, Folder, apc

_KEY, _EXTRA, _PROMPT = 41, 7, range(9)


def store_room_properties() -> list[Property]:
    """Those of the functions that make room, and that read whole files."""
    return [
        Property("store: room for a prompt", "mlx_vlm/apc*.py", ENTRIES, _room),
        Property("store: files that lack a part", FILE, (*READERS, *ENTRIES), _files_lacking),
        Property("store: classes of somebody else", "mlx_vlm/apc*.py", ENTRIES, _own_classes),
    ]


def _room() -> Iterator[str]:
    """In whole steps, for as many tokens as are asked; what is there stays."""
    with Folder() as folder:
        store = folder.open()
        cache = samples.plain(5, room=0)
        cache.step = 8
        listed = samples.caches.CacheList(samples.plain(5, room=0), samples.state())
        entries = [written(store, one) for one in (cache, listed, samples.quantized(1, 5, 0))]
        for more in (None, 0, 4, 5, 6, 8, 9, 300):
            read = [entry.read(more=more)[0] for entry in entries]
            grown = more is not None and more > 5
            wanted = [
                step * math.ceil((more or 0) / step) if grown else 5 for step in (8, 256, 256)
            ]
            got = [read[0].keys.shape[2], read[1][0].keys.shape[2], read[2].keys[0].shape[2]]
            if got != wanted or read[0].values.shape[2] != wanted[0] or read[0].step != 8:
                yield f"with {more} tokens asked there is room for {got}"
            for one, source in zip(read, (cache, listed, samples.quantized(1, 5, 0)), strict=True):
                both = samples.content(one), samples.content(source)
                if both[0] != both[1]:
                    yield f"with room for {more} a cache is {both[0]}"
            if read[0].keys[..., 5:, :].any().item() or read[0].values[..., 5:, :].any().item():
                yield "the room behind tokens is not zero"
        pad = apc._pad_kv_for_capacity
        keys = samples.drawn(1, 1, 2, 7, 3)
        values = samples.drawn(2, 1, 2, 7, 5).astype(mx.bfloat16)
        for offset, more, step, columns in (
            *((5, 6, 4, 8), (5, 7, 4, 8), (5, 9, 0, 9), (5, 7, 0, 7), (5, 5, 4, 7)),
            *((5, 8, 1, 8), (5, None, 4, 7), (7, 8, 8, 8)),
        ):
            both = pad(keys, values, offset=offset, min_capacity_tokens=more, step=step)
            for one, source in zip(both, (keys, values), strict=True):
                rest = [(0, 0), (0, 0), (0, columns - 7), (0, 0)]
                alike = mx.array_equal(one, mx.pad(source, rest))
                if not alike or one.dtype != source.dtype or one.shape[2] != columns:
                    yield f"room for {more} tokens in steps of {step} is {one.shape[2]}"


def _files_lacking() -> Iterator[str]:
    """Words about a whole file: without one that it needs, it is no snapshot."""
    with Folder() as folder:
        store = folder.open()
        store.save_exact_cache(_KEY, _PROMPT, _EXTRA, [samples.plain()], synchronous=True)
        path = store._exact_index[_KEY]
        held, words = cast("tuple[Any, Any]", mx.load(str(path), return_metadata=True))
        mx.eval(held)
        whole = list(_PROMPT)
        cases: list[tuple[dict[str, str], bool, bool]] = [
            ({}, True, True),
            ({"layout": "other"}, False, False),
            ({"num_entries": "0"}, False, True),
            ({"num_entries": "2"}, False, True),
            ({"num_entries": "x"}, False, True),
            ({"token_ids": "x"}, False, False),
            ({"extra_hash": "x"}, False, False),
            ({"extra_hash": "8"}, True, False),
            ({apc._EMPTY_TENSORS_METADATA: "{"}, False, True),
            ({apc._EMPTY_TENSORS_METADATA: "[]"}, False, True),
        ]
        for changed, loads, finds in cases:
            mx.save_safetensors(str(path), held, metadata={**words, **changed})
            store._header_cache.clear()
            found = store.find_exact_prefix([*whole, 99], extra_hash=_EXTRA)
            got = store.load_exact_cache(_KEY)
            if (got is not None, found is not None) != (loads, finds):
                yield f"with {changed} a file is loaded: {got}, found: {found}"
        for words_of in ({**words, "prefix_trimmable": "0"}, {**words, "c0_kind": "rotating_kv"}):
            mx.save_safetensors(str(path), held, metadata=words_of)
            store._header_cache.clear()
            if store.load_exact_cache(_KEY, prefix_len=3) is not None:
                yield "what cannot be cut is cut"
        with patch.object(store, "_open_shard_header", lambda _: None):
            found = store.find_exact_prefix([*whole, 1], extra_hash=_EXTRA)
            if found or store.load_exact_cache(_KEY):
                yield "a file that cannot be read is a snapshot"


class _Own:
    """Has a state, and nothing that restores it."""

    def __init__(self, state: Any, beside: Any = None) -> None:
        self.state, self.meta_state = state, beside


def _own_classes() -> Iterator[str]:
    """Those of the library by their name, with a state of any shape."""
    array = samples.drawn(1, 2, 3)
    tree = {"a": [array, None, 3], 4: (True, 1.5, "x"), "b": {"c": array + 1}, "d": [()]}
    of_library: Any = type("Own", (_Own,), {"__module__": "mlx_vlm.apc"})
    with Folder() as folder, patch.object(apc, "Own", of_library, create=True):
        store = folder.open()
        read = written(store, of_library(tree, "m")).read()[0]
        if type(read) is not of_library or read.meta_state != "m":
            yield f"a class of the library is read as {read}"
        elif samples.nested(read.state) != samples.nested(tree):
            yield f"the state of a class of the library is {read.state}"
        both = array, array + 1
        keyed = [of_library({one: number}) for number, one in enumerate(both)]
        store.save_exact_cache(_KEY, _PROMPT, _EXTRA, keyed, synchronous=True)
        for number, cache in enumerate(store.load_exact_cache(_KEY)[2]):
            ((key, value),) = cache.state.items()
            if not mx.array_equal(key, both[number]) or value != number:
                yield f"a state with an array as its key is {cache.state}"
        if store._snapshot_exact_cache_entry(_Own([]), "c0", {}, {}):
            yield "a class of another library is written"
