"""How mlx-vlm writes what it keeps in files, where these belong, and who asks for it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import mlx.core as mx

from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat

apc: Any = compat.part("apc")
caches: Any = compat.part("models.cache")
coordinator: Any = compat.part("apc_coordinator")

_FILE = "mlx_vlm/apc.py"
_DTYPES = (
    *(mx.float16, mx.bfloat16, mx.float32, mx.bool_, mx.int8, mx.int16, mx.int32, mx.int64),
    *(mx.uint8, mx.uint16, mx.uint32, mx.uint64),
)


def format_properties() -> list[Property]:
    """Those of safetensors' parts, of trees, of folders' names, and of ``APCCoordinator``."""
    readers = ("_read_safetensors_*", "_safetensors_*", "_mlx_array_*", "_numel", "_mlx_dtype_*")
    trees = ("_encode_*", "_decode_*", "_extract_empty_*", "_restore_empty_*", "_resolve_*")
    return [
        Property("formats: arrays", _FILE, readers, _arrays),
        Property("formats: trees", _FILE, (*trees, *readers), _trees),
        Property("formats: folders", _FILE, ("apc_disk_namespace", "_safe_namespace"), _folders),
        Property(
            "coordinators: what is asked",
            "mlx_vlm/apc*.py",
            ("APCCoordinator.*", "extract_prompt_*", "snapshot_prompt_*", "_prompt_cache_is_*"),
            _asked,
        ),
    ]


def _arrays() -> Iterator[str]:
    """Of each dtype, whole and by their first axis; what is out of bounds is nothing."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.safetensors"
        made = {str(d): (mx.arange(12).reshape(4, 3) % 5 - 2).astype(d) for d in _DTYPES}
        mx.save_safetensors(str(path), made, metadata={"a": "b"})
        entries, said, start = apc._read_safetensors_header(path)
        if said != {"a": "b"} or apc._read_safetensors_metadata(path) != said:
            yield f"a file says {said}"
        for name, array in made.items():
            entry = entries[name]
            got = apc._read_safetensors_tensor(path, start, entry)
            if got is None or got.dtype != array.dtype or not mx.array_equal(got, array):
                yield f"{name} is not what was written"
            if apc._mlx_dtype_from_name(name) != array.dtype:
                yield f"{name} is another dtype"
            for first, last in itertools.product(range(-1, 6), repeat=2):
                got = apc._read_safetensors_axis0_slice(path, start, entry, first, last)
                right = 0 <= first <= last <= 4
                if (got is not None) != right:
                    yield f"{name} from {first} to {last} of 4 is {got}"
                elif got is not None and not mx.array_equal(got, array[first:last]):
                    yield f"{name} from {first} to {last} is not what was written"
            low, high = entry["data_offsets"]
            for wrong in (
                {**entry, "data_offsets": [low, high - 1]},
                {**entry, "data_offsets": [high, low]},
                {**entry, "shape": [4, 4]},
                {**entry, "dtype": "X"},
                {k: v for k, v in entry.items() if k != "shape"},
                {**entry, "data_offsets": [low + 10_000, high + 10_000]},
            ):
                if apc._read_safetensors_tensor(path, start, wrong) is not None:
                    yield f"{wrong} of {name} is read"
        if apc._mlx_dtype_from_name("x") is not None or apc._numel(()) != 1:
            yield "an unknown dtype is known, or a number is of no element"
        yield from _headers(path)


def _headers(path: Path) -> Iterator[str]:
    whole = path.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    for cut in (0, 7, 8, 8 + size - 1, 8 + size):
        path.write_bytes(whole[:cut])
        if (apc._read_safetensors_header(path) is not None) != (cut == 8 + size):
            yield f"of a file its first {cut} bytes are read, {8 + size} are its header"
    for text in (b"[", b"", b"\xff"):
        path.write_bytes(len(text).to_bytes(8, "little") + text)
        if apc._read_safetensors_header(path) is not None:
            yield f"a header of {text!r} is read"
    path.unlink()
    if apc._read_safetensors_header(path) or apc._read_safetensors_metadata(path) is not None:
        yield "a file that is gone is read"


def _trees() -> Iterator[str]:
    """Round trips; arrays without elements beside the others; only the library's own classes."""
    one, none = mx.arange(6).reshape(2, 3), mx.zeros((2, 0, 3), mx.bfloat16)
    tree = {"a": [one, (None, True, 3, 2.5, "x")], 4: none, "deep": {"b": [], "c": ()}, "t": (one,)}
    arrays: dict[str, mx.array] = {}
    structure = apc._encode_checkpoint_tree(tree, "p", arrays, [0])
    if sorted(arrays) != ["p_t0", "p_t1", "p_t2"]:
        yield f"arrays of a tree are named {sorted(arrays)}"
    got = apc._decode_checkpoint_tree(structure, arrays.__getitem__)
    same = (
        got.keys() == tree.keys()
        and got["deep"] == tree["deep"]
        and got["a"][0] is got["t"][0] is one
    )
    if not same or got["a"][1] != tree["a"][1] or got[4] is not none:  # type: ignore[index]
        yield f"a tree comes back as {got}"
    for wrong in (object(), [object()], (object(),), {"a": object()}, {object(): 1}):
        if apc._encode_checkpoint_tree(wrong, "p", {}, [0]) is not None:
            yield f"{wrong} is written"
    specs = apc._extract_empty_tensor_specs(arrays)
    if list(arrays) != ["p_t0", "p_t2"] or specs != {
        "p_t1": {"shape": [2, 0, 3], "dtype": "mlx.core.bfloat16"}
    }:
        yield f"arrays without elements are {specs}"
    yield from _empty()
    resolve = apc._resolve_checkpoint_class
    if resolve("mlx_vlm.models.cache", "KVCache") is not caches.KVCache:
        yield "a class of the library is not found"
    for module, name in (
        ("os", "PathLike"),
        ("mlx_vlm", "generate"),
        ("mlx_vlm.models.cache", "f.<locals>.C"),
        ("mlx_vlm.models.cache", "Nothing"),
        ("mlx_vlm.nothing", "KVCache"),
        ("mlx_vlm.models.cache", "cache_nbytes"),
    ):
        if resolve(module, name) is not None:
            yield f"{name} of {module} is taken for a cache"


def _empty() -> Iterator[str]:
    restore = apc._restore_empty_tensor_entries
    if restore({"a": 1}, {}) != {"a": 1}:
        yield "a file without such arrays has others"
    good = '{"shape": [2, 0], "dtype": "mlx.core.float16"}'
    found = restore({"a": 1}, {apc._EMPTY_TENSORS_METADATA: f'{{"b": {good}}}'})
    got = found and apc._read_safetensors_tensor(Path(), 0, found["b"])
    if got is None or got.shape != (2, 0) or got.dtype != mx.float16 or set(found) != {"a", "b"}:
        yield f"an array without elements comes back as {got}"
    for wrong in (
        "[",
        "[]",
        f'{{"a": {good}}}',
        '{"b": 3}',
        '{"b": {"shape": 0, "dtype": "mlx.core.float16"}}',
        '{"b": {"shape": [0], "dtype": 3}}',
        '{"b": {"shape": [0], "dtype": "x"}}',
        '{"b": {"shape": [2], "dtype": "mlx.core.float16"}}',
        '{"b": {"shape": [0, -1], "dtype": "mlx.core.float16"}}',
        '{"b": {"shape": [0, 1.0], "dtype": "mlx.core.float16"}}',
        '{"b": {"shape": ["x"], "dtype": "mlx.core.float16"}}',
    ):
        if restore({"a": 1}, {apc._EMPTY_TENSORS_METADATA: wrong}) is not None:
            yield f"{wrong} is taken for arrays without elements"


def _folders() -> Iterator[str]:
    """Another folder for each model, adapter, revision and way to quantize."""
    options: list[dict[str, Any]] = [
        {},
        {"adapter_path": "a"},
        {"weights_fingerprint": "a"},
        *({"kv_bits": bits} for bits in (3.5, 4)),
        *({"kv_bits": 4, "kv_group_size": size} for size in (32, 64)),
        {"kv_bits": 4, "kv_quant_scheme": "turboquant"},
        {"kv_bits": 4, "quantized_kv_start": 9},
        {"kv_bits": 4, "kv_key_bits": 3},
        {"kv_bits": 4, "kv_value_bits": 3},
    ]
    found = [apc.apc_disk_namespace(m, **given) for m in ("org/m", "org/n") for given in options]
    # Names are made plain: the number behind them must distinguish models, too.
    if len({name[-8:] for name in found}) != len(found):
        yield "two ways to keep caches have one folder"
    if found != [
        apc.apc_disk_namespace(m, **given) for m in ("org/m", "org/n") for given in options
    ]:
        yield "a folder has another name the second time"
    if apc.apc_disk_namespace("m", adapter_path="") != apc.apc_disk_namespace("m"):
        yield "an empty name of an adapter is not none"
    start = f"org/m#s{apc._adapter_schema_version()}-"
    if any(not n.startswith(start) or len(n) != len(start) + 8 for n in found[: len(options)]):
        yield f"folders are named {found[0]}"
    names = [apc._safe_namespace(n) for n in ("a b/c", "", "__", "a.B-9_", "x" * 200)]
    if names != ["a_b_c", "default", "default", "a.B-9", "x" * 128]:
        yield f"folders are named {names}"


class _Asked:
    """Stands for a pool that notes what it is asked."""

    def __init__(self, *, room: bool = True) -> None:
        self.calls: list[Any] = []
        self.stats = apc.APCStats()
        self.lock, self.disk = apc.threading.RLock(), None
        self._room = room

    def release(self, blocks: Any) -> None:
        self.calls.append(("release", tuple(blocks)))

    def _make_room(self, size: int) -> bool:
        self.calls.append(("room", size))
        return self._room

    def store_exact_cache(self, tokens: Any, kept: Any, *, extra_hash: int) -> bool:
        self.calls.append(("store", tokens, kept, extra_hash))
        return True


def _asked() -> Iterator[str]:
    """Each call goes to the pool as it was made; without one, or without a plan, none does."""
    blocks = SimpleNamespace(make_cache=lambda: [caches.KVCache(), caches.KVCache()])
    states = SimpleNamespace(make_cache=lambda: [caches.ArraysCache(1)])
    kinds = ((blocks, "block"), (states, "exact"))
    for (model, mode), pool in itertools.product(kinds, (None, _Asked())):
        one = coordinator.APCCoordinator(pool, model)
        wanted = (pool is not None, mode if pool else None, pool is not None and mode == "exact")
        if (one.enabled, one.legacy_mode, one.is_checkpoint) != wanted:
            yield f"a coordinator is {(one.enabled, one.legacy_mode, one.is_checkpoint)}"
        for outer in (model, SimpleNamespace(language_model=model)):
            fresh = coordinator.APCCoordinator(pool, outer).fresh_cache()
            if [type(c) for c in fresh] != [type(c) for c in model.make_cache()]:
                yield f"fresh caches are {fresh}"
    yield from _stored(states)
    pool = _Asked()
    one = coordinator.APCCoordinator(pool, blocks)
    for hit in (None, {}, {"matched_blocks": [1, 2]}):
        one.release_hit(hit)
    coordinator.APCCoordinator(None, blocks).release_hit({"matched_blocks": [1]})
    if pool.calls != [("release", ()), ("release", (1, 2))]:
        yield f"what is released are {pool.calls}"
    if one.store_checkpoint([1], [caches.KVCache()]) or len(pool.calls) != 2:
        yield "a state is kept of a model of blocks"
    warm = one.materialize_single({"warm_cache": ["w"], "prefix_len": 5}, min_capacity_tokens=3)
    if warm != ["w"] or pool.stats.restored_tokens != 5:
        yield f"{pool.stats.restored_tokens} tokens of 5 are restored, as {warm}"
    given = {"safe_lookup_min": 3, "suffix_is_text_only": 4, "prefix_has_media": 5}
    with patch.object(apc, "apc_lookup_plan", lambda *a, **k: {"asked": (a, k)}):
        hit = one.lookup([1, 2], extra_hash=9, **given)
        none = coordinator.APCCoordinator(None, blocks).lookup([1, 2], extra_hash=9, **given)
    wanted_call = ((pool, [1, 2]), {"extra_hash": 9, "apc_mode": "block", **given})
    if none is not None or hit != {"asked": wanted_call, "cache_plan": one.plan}:
        yield f"a pool is asked for {hit}"


def _state(rows: int) -> Any:
    cache = caches.ArraysCache(1, left_padding=[0] * rows)
    cache[0] = mx.arange(3 * rows).reshape(rows, 3) * 1.0
    return cache


def _stored(states: Any) -> Iterator[str]:
    """The row that is named, of a batch; nothing where there is no room for it."""
    for row, extra in itertools.product((None, 0, 1), (0, 7)):
        pool, batch = _Asked(), _state(2)
        one = coordinator.APCCoordinator(pool, states)
        options = {"batch_idx": row, "extra_hash": extra}
        for call in (
            one.store_checkpoint,
            lambda t, c, one=one, **o: one.commit(c, t, blocks_in_use=["b"], **o),
        ):
            pool.calls.clear()
            if not call([1, 2], [batch], **options):
                yield "a state is not kept"
            first, second, *rest = pool.calls
            kept = second[2][0][0]
            want = batch[0][(row or 0) : (row or 0) + 1]
            if first != ("room", batch[0].nbytes) or second[1] != [1, 2] or second[3] != extra:
                yield f"of a state {pool.calls} are asked"
            if not mx.array_equal(kept, want):
                yield f"of row {row} another state is kept"
            if rest not in ([], [("release", ("b",))]):
                yield f"after a state is kept {rest} are asked"
        if not rest:
            yield "blocks in use are not released"
    pool = _Asked(room=False)
    got = coordinator.APCCoordinator(pool, states).store_checkpoint([1], [_state(2)])
    if got or pool.stats.memory_skips != 1 or len(pool.calls) != 1:
        yield f"without room a state is {got}, {pool.stats.memory_skips} are left out"
