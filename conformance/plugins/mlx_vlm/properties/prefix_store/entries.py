"""What mlx-vlm's files of prefixes hold of each class of cache, and which of them are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from conformance.backend.cache_entries import arrays
from conformance.core.properties import Property
from conformance.plugins.mlx_vlm.properties.prefix_store import samples
from conformance.plugins.mlx_vlm.properties.prefix_store.files import FILE, Folder, apc

_EXTRA, _PROMPT = 7, range(9)
# The functions that write and read one cache.
ENTRIES = (
    *("DiskBlockStore._*exact*", "DiskBlockStore.*exact*", "_extract_empty_*"),
    *("_restore_empty_*", "_encode_*", "_decode_*", "_resolve_*", "_pad_kv_for_capacity"),
    *("_read_safetensors_*", "_safetensors_*", "_mlx_array_*", "reserve_checkpoint_capacity"),
    *("_dense_*", "_copy_*"),
)
# What an entry may lack: it is an entry without tokens, or without padding, then.
_OPTIONAL = ("pooled", "buf_kv", "buf_gate", "left_padding", "lengths", "index_keys")
# What of an entry's words is no number.
_WORDS = ("kind", "module", "qualname", "tree", "none", "empty")
# Numbers that a file must have; another one is what it is in a new cache where it is missing.
_NEEDED = ("max_size", "window_size", "chunk_size", "ratio")


def store_entry_properties() -> list[Property]:
    """Those of the functions that write and read one layer's cache."""
    return [
        Property("store: each class", "mlx_vlm/apc*.py", ENTRIES, _classes),
        Property("store: entries that lack a part", FILE, ENTRIES, _lacking),
        Property("store: what is no entry", FILE, ENTRIES, _no_entries),
    ]


@dataclass
class Entry:
    """A cache as it is written: its arrays in a file, and words about it.

    Attributes:
        tensors: where each array is in the file.
        start: where the arrays begin.
    """

    store: Any
    path: Path
    tensors: dict[str, Any]
    about: dict[str, str]
    start: int

    def read(
        self, *, more: int | None = None, cut: int | None = None, **changed: Any
    ) -> tuple[Any, list[mx.array]]:
        """The cache and the arrays to be computed; ``changed`` are its tensors and words."""
        targets: list[mx.array] = []
        made = self.store._load_exact_cache_entry(
            self.path,
            changed.get("tensors", self.tensors),
            changed.get("about", self.about),
            self.start,
            "c0",
            min_capacity_tokens=more,
            eval_targets=targets,
            prefix_len=cut,
        )
        return made, targets


def written(store: Any, cache: Any) -> Entry:
    """That of this cache, in a file of its own."""
    arrays_of: dict[str, mx.array] = {}
    about: dict[str, str] = {}
    if not store._snapshot_exact_cache_entry(cache, "c0", arrays_of, about):
        raise ValueError(f"{type(cache).__name__} is refused")
    specs = apc._extract_empty_tensor_specs(arrays_of)
    path = store.dir / f"entry {len(list(store.dir.iterdir()))}.safetensors"
    mx.save_safetensors(str(path), arrays_of or {"none": mx.zeros(1)})
    tensors, _, start = apc._read_safetensors_header(path)
    said = {apc._EMPTY_TENSORS_METADATA: apc.json.dumps(specs)} if specs else {}
    return Entry(store, path, apc._restore_empty_tensor_entries(tensors, said), about, start)


def _all() -> dict[str, Any]:
    filled = {f"a {name}": make() for name, make in samples.stored().items()}
    nothing = {f"an empty {name}": make() for name, make in samples.empty().items()}
    # Of these no bytes are counted while they are empty.
    for name in ("StaticPrefixKVCache", "QuantizedKVCache"):
        del nothing[f"an empty {name}"]
    keys_only = samples.plain(3)
    keys_only.values = keys_only.values[..., :0]
    half = samples.window(4)
    half.keys = half.keys.astype(mx.bfloat16)
    return {**filled, **nothing, "one without values": keys_only, "one of two dtypes": half}


# What a file calls a cache; all else it calls a checkpoint of a class.
_CALLED = {
    "KVCache": "kv",
    "RotatingKVCache": "rotating_kv",
    "ChunkedKVCache": "chunked_kv",
    "ArraysCache": "arrays",
    "SimpleKVCache": "simple_kv",
    "PoolingCache": "pooling",
    "RingSlidingKVCache": "ring_kv",
    "MiniMaxM3KVCache": "minimax_m3",
    "CacheList": "cache_list",
    "tuple": "tuple",
}


def _classes() -> Iterator[str]:
    """Through a file each is what it was, alone and beside others."""
    with Folder() as folder:
        store = folder.open()
        every = _all()
        for number, (name, cache) in enumerate(every.items()):
            if not store.save_exact_cache(number, _PROMPT, _EXTRA, [cache], synchronous=True):
                yield f"{name} is not written"
        store.save_exact_cache(99, _PROMPT, _EXTRA, list(every.values()), synchronous=True)
        store = folder.open()
        whole = store.load_exact_cache(99)
        for number, (name, cache) in enumerate(every.items()):
            got = store.load_exact_cache(number)
            for read in (got[2][0], whole[2][number]):
                if samples.content(read) != samples.content(cache):
                    yield f"{name} is read as {samples.content(read)}"
        for none in (object(), (object(),), samples.caches.CacheList(object())):
            if store.save_exact_cache(98, _PROMPT, _EXTRA, [none], synchronous=True):
                yield f"a {type(none).__name__} without a cache is written"


def _lacking() -> Iterator[str]:
    """Without an array or a number that it needs, or with one that cannot be read, none."""
    with Folder() as folder:
        store = folder.open()
        for name, cache in _all().items():
            entry = written(store, cache)
            copy, targets = entry.read()
            if entry.about["c0_kind"] != _CALLED.get(type(cache).__name__, "checkpoint"):
                yield f"a file calls {name} {entry.about['c0_kind']}"
            if samples.content(copy) != samples.content(cache):
                yield f"{name} is read as {samples.content(copy)}"
            if name.startswith("an empty") and any(t.startswith("c0") for t in entry.tensors):
                yield f"of {name} there are arrays in a file"
            size = sum(a.nbytes for a in targets)
            if size != sum(a.nbytes for a in arrays([copy])) and "MiniMax" not in name:
                yield f"of {name} {size} bytes are computed"
            for tensor in entry.tensors:
                without = {k: v for k, v in entry.tensors.items() if k != tensor}
                damaged = {**without, tensor: {**entry.tensors[tensor], "dtype": "X"}}
                needed = not tensor.endswith(_OPTIONAL)
                used = tensor.startswith("c0") and not entry.tensors[tensor].get("mlx_dtype")
                if used and needed and entry.read(tensors=without)[0] is not None:
                    yield f"{name} is read without {tensor}"
                if used and entry.read(tensors=damaged)[0] is not None:
                    yield f"{name} is read with {tensor} of an unknown dtype"
            yield from _numbers(name, entry)


def _numbers(name: str, entry: Entry) -> Iterator[str]:
    for word in entry.about:
        part = word.rpartition("c0_")[2]
        if word.endswith(_WORDS):
            continue
        wrong, lacks = {**entry.about, word: "x"}, dict(entry.about)
        del lacks[word]
        # A plain cache without tokens is a new one, whatever a file says.
        new = entry.about.get("c0_empty") and entry.about["c0_kind"] == "kv"
        read = entry.read(about=wrong)[0]
        if new and samples.content(read) != samples.content(samples.caches.KVCache()):
            yield f"{name} is read with {part} x as {samples.content(read)}"
        if not new and read is not None:
            yield f"{name} is read with {part} x"
        if part in _NEEDED and entry.read(about=lacks)[0] is not None:
            yield f"{name} is read without {part}"


def _no_entries() -> Iterator[str]:
    """Of an unknown kind, of a class of somebody else, with a tree that is none."""
    with Folder() as folder:
        store = folder.open()
        entry = written(store, samples.quantized())
        for changed in (
            {"c0_kind": "other"},
            {"c0_module": "os", "c0_qualname": "stat_result"},
            {"c0_module": "mlx_vlm.apc", "c0_qualname": "logger"},
            {"c0_module": "mlx_vlm.apc", "c0_qualname": "f.<locals>.g"},
            {"c0_module": "mlx_vlm.none", "c0_qualname": "KVCache"},
            {"c0_qualname": "NoCache"},
            {"c0_tree": "{"},
            {"c0_tree": '{"kind":"other"}'},
            {"c0_tree": '{"kind":"array","name":"c0_t99"}'},
            {"c0_tree": '{"kind":"dict","items":[]}'},
        ):
            if entry.read(about={**entry.about, **changed})[0] is not None:
                yield f"an entry with {changed} is read"
        for lacks in ("c0_kind", "c0_module", "c0_qualname", "c0_tree"):
            about = {k: v for k, v in entry.about.items() if k != lacks}
            if entry.read(about=about)[0] is not None:
                yield f"an entry without {lacks} is read"
        for refused in (
            _Broken(),
            type("Made", (samples.caches.QuantizedKVCache,), {"__module__": "__main__"})(),
            _Odd(),
        ):
            if store._snapshot_exact_cache_entry(refused, "c0", {}, {}):
                yield f"a {type(refused).__name__} is written"
        for name in ("KVCache", "RotatingKVCache", "ChunkedKVCache", "SimpleKVCache"):
            for lacks in ("keys", "values"):
                half = samples.stored()[name]()
                setattr(half, lacks, None)
                if written(store, half).about.get("c0_empty") != "1":
                    yield f"a {name} without {lacks} is not empty"
        entry = written(store, samples.plain(5))
        for cut, right in ((4, True), (5, True), (6, False)):
            if (entry.read(cut=cut)[0] is not None) != right:
                yield f"of 5 tokens the first {cut} are read: {not right}"
        short = {**entry.about, "c0_offset": "99"}
        if entry.read(about=short, cut=6)[0] is not None:
            yield "more tokens are read than there are"


class _Broken:
    def prefix_cache_snapshot(self) -> Any:
        raise RuntimeError


class _Odd:
    """A state with something that no file holds."""

    def __init__(self) -> None:
        self.state = self.meta_state = {"a": [object()]}
