"""How mlx-vlm joins and splits the inputs of rows, and makes, quantizes and joins their caches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_vlm.turboquant import BatchTurboQuantKVCache

from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat

ar: Any = compat.part("generate.ar")

_FILE = "mlx_vlm/generate/ar.py"
_LENGTHS, _WIDTH = (3, 5, 1, 5), 4


def row_properties() -> list[Property]:
    """The properties of the functions around ``BatchGenerator``."""
    kwargs = ("_*prompt_kwarg*", "_mrope_position_ids_row", "_*_pad_prompts")
    deltas = ("PromptProcessingBatch._capture_rope*", "PromptProcessingBatch._normalize_rope*")
    return [
        Property("rows: put together", _FILE, kwargs, _together),
        Property("rows: apart", _FILE, kwargs, _apart),
        Property("rows: unpadded", _FILE, (*kwargs, "_unpad_batch_prompts"), _unpadded),
        Property("rows: rope deltas", _FILE, deltas, _deltas),
    ]


def _row(number: int, length: int, *, three: bool) -> dict[str, Any]:
    """A prompt's inputs: some by token, one for the row, others shared by all rows."""
    drawn = np.random.default_rng(number)

    def of(*shape: int) -> mx.array:
        return mx.array(drawn.integers(1, 90, shape).astype(np.float32))

    return {
        "inputs_embeds": of(1, length, _WIDTH),
        "position_ids": of(3, 1, length) if three else of(1, length),
        "token_type_ids": of(1, length),
        "attention_mask": of(1, length, 2),
        "image_sizes": of(1, 2),
        "of_row": of(1, length),
        "scalar": mx.array(3.0),
        "name": "shared",
        "_apc_tenant": "a",
    }


def _left(array: Any, length: int, axis: int) -> np.ndarray:
    """The array padded on the left with zeros."""
    array = array.astype(mx.float32)
    pad = [(0, 0)] * array.ndim
    pad[axis] = (length - array.shape[axis], 0)
    return np.pad(np.array(array), pad)


def differing(got: Any, wanted: np.ndarray, what: str) -> Iterator[str]:
    """The difference of an array from the wanted one."""
    array = np.array(got.astype(mx.float32) if got.dtype == mx.bfloat16 else got)
    if array.shape != wanted.shape or (array != wanted).any():
        yield f"{what}: {array.shape} with other values than {wanted.shape}"


def _together() -> Iterator[str]:
    for kinds in ((False,) * 4, (True,) * 4, (False, True, False, False)):
        rows = [
            _row(n, length, three=t)
            for n, (length, t) in enumerate(zip(_LENGTHS, kinds, strict=True))
        ]
        for row in rows:
            row["of_row"] = row["of_row"][0, :1]
            for key in ("inputs_embeds", "token_type_ids"):
                row[key] = row[key].astype(mx.bfloat16)
        ids = [[7] * length for length in _LENGTHS]
        embeds, merged = ar._merge_prefill_prompt_kwargs(rows, ids)
        longest = max(_LENGTHS)
        want = np.concatenate([_left(row["inputs_embeds"], longest, 1) for row in rows])
        yield from differing(embeds, want, "embeddings")
        for key in ("token_type_ids", "attention_mask"):
            want = np.concatenate([_left(row[key], longest, 1) for row in rows])
            yield from differing(merged[key], want, key)
        for key in ("image_sizes", "of_row"):
            want = np.concatenate([np.array(row[key]) for row in rows])
            yield from differing(merged[key], want, key)
        positions = [_left(row["position_ids"], longest, -1) for row in rows]
        if any(kinds):
            positions = [
                p if t else np.stack([p] * 3) for p, t in zip(positions, kinds, strict=True)
            ]
        want = np.concatenate(positions, axis=1 if any(kinds) else 0)
        yield from differing(merged["position_ids"], want, "position_ids")
        others = {"position_ids", "token_type_ids", "attention_mask", "image_sizes", "of_row"}
        if set(merged) - others != {"scalar", "name"} or merged["name"] != "shared":
            yield f"the rows' other inputs are {sorted(set(merged) - others)}"
        dtypes = {embeds.dtype, merged["token_type_ids"].dtype}
        if dtypes != {mx.bfloat16}:
            yield f"inputs of bfloat16 are {dtypes}"
    yield from _batched_inputs()
    for wrong in (None, {}, {"inputs_embeds": None}):
        yield from refused(partial(ar._merge_prefill_prompt_kwargs, [wrong], [[1]]))
    yield from differing(ar._left_pad_prompts([[1, 2], [3]]), np.array([[1, 2], [0, 3]]), "left")
    yield from differing(ar._right_pad_prompts([[1, 2], [3]]), np.array([[1, 2], [3, 0]]), "right")
    wide = ar._left_pad_prompts([[1]], 3), ar._right_pad_prompts([[1]], max_length=3)
    for got, padded in zip(wide, ([[0, 0, 1]], [[1, 0, 0]]), strict=True):
        yield from differing(got, np.array(padded), "padded to a length")


def _batched_inputs() -> Iterator[str]:
    """A row that was given the arrays of all rows gets its own part of them."""
    whole = {"grid": mx.arange(6).reshape(2, 3), "position_ids": mx.arange(12).reshape(3, 2, 2)}
    rows = [{"inputs_embeds": mx.ones((1, 2, _WIDTH)), **whole} for _ in range(2)]
    _, merged = ar._merge_prefill_prompt_kwargs(rows, [[1, 2], [3, 4]])
    for key, array in whole.items():
        yield from differing(merged[key], np.array(array), f"{key} of all rows")


def refused(call: Callable[[], object]) -> Iterator[str]:
    """The problem that a call is not refused with an error naming the cause, if so."""
    try:
        got = call()
    except ValueError:
        return
    yield f"arguments that are wrong are taken: {got}"


def _apart() -> Iterator[str]:
    batch = {
        "inputs_embeds": mx.arange(24).reshape(3, 2, 4),
        "position_ids": mx.arange(18).reshape(3, 3, 2),
        "one": mx.arange(4).reshape(1, 4),
        "two": mx.arange(8).reshape(2, 4),
        "scalar": mx.array(2),
        "name": "shared",
    }
    rows = ar._split_prompt_kwargs_per_row(batch, 3)
    for number, row in enumerate(rows):
        at = slice(number, number + 1)
        yield from differing(row["inputs_embeds"], np.array(batch["inputs_embeds"])[at], "embeds")
        yield from differing(row["position_ids"], np.array(batch["position_ids"])[:, at], "ids")
        for name in ("one", "two"):
            yield from differing(row[name], np.array(batch[name])[:1], "what all rows share")
        if row["name"] != "shared" or row["scalar"] is not batch["scalar"]:
            yield "what is no array of rows is another"
        if set(row) != set(batch):
            yield f"a row has {sorted(row)}"
    if len(rows) != 3 or ar._split_prompt_kwargs_per_row(batch, 1) != [batch]:
        yield f"{len(rows)} rows of 3"
    if ar._split_prompt_kwargs_per_row(None, 2) != [{}, {}] or ar._split_prompt_kwargs_per_row(
        {}, 1
    ) != [{}]:
        yield "no inputs are not none of each row"
    shared = mx.arange(6).reshape(3, 1, 2)
    for row in ar._split_prompt_kwargs_per_row({"position_ids": shared}, 2):
        yield from differing(row["position_ids"], np.array(shared), "positions of all rows")
    fewer = mx.arange(12).reshape(3, 2, 2)
    for row in ar._split_prompt_kwargs_per_row({"position_ids": fewer}, 3):
        yield from differing(row["position_ids"], np.array(fewer)[:, :1], "the first positions")


def _unpadded() -> Iterator[str]:
    """Padding on either side is cut off tokens and inputs; other inputs do not change."""
    ids = mx.arange(20).reshape(4, 5)
    spans = ((0, 5), (2, 5), (0, 3), (1, 4))
    mask = mx.array([[int(a <= i < b) for i in range(5)] for a, b in spans])
    lists: Any = ids.tolist()
    for given in (ids, lists):
        rows = [_row(n, 5, three=n % 2 == 0) for n in range(4)]
        before = [dict(row) for row in rows]
        prompts, inputs = ar._unpad_batch_prompts(given, mask, rows)
        for (a, b), prompt, row, old, whole in zip(
            spans, prompts, inputs, before, lists, strict=True
        ):
            if prompt != whole[a:b]:
                yield f"of {whole} {prompt} is left"
            for key in old:
                want = old[key]
                if key in ("inputs_embeds", "token_type_ids", "attention_mask"):
                    want = old[key][:, a:b]
                elif key == "position_ids":
                    want = old[key][..., a:b]
                if isinstance(want, mx.array):
                    yield from differing(row[key], np.array(want), f"{key} without padding")
    rows = [{}] * 4
    if ar._unpad_batch_prompts(ids, None, rows) != (ids.tolist(), rows):
        yield "prompts without a mask are changed"
    ragged = [[1], [2, 3]]
    if ar._unpad_batch_prompts(ragged, None, rows) != (ragged, rows):
        yield "lists without a mask are changed"
    one = mx.array([[1, 1]])
    wrong: list[tuple[Any, Any, Any]] = [
        (mx.arange(3), None, [{}]),
        (ids, mask[0], rows),
        (ids, mask.tolist(), rows),
        (ids[0], mask, rows),
        (ids[:, :4], mask, rows),
        (ids[:3], mask, rows),
        ([[1, 2], [3, 4]], one, [{}]),
        ([[1, 2, 3]], one, [{}]),
        (ids, mask, rows[:3]),
        (mx.array([[1, 2]]), mx.array([[0, 0]]), [{}]),
        (mx.array([[1, 2, 3]]), mx.array([[1, 0, 1]]), [{}]),
    ]
    for arguments in wrong:
        yield from refused(partial(ar._unpad_batch_prompts, *arguments))


def _deltas() -> Iterator[str]:
    """One row for each request: a single row is repeated, and missing rows get the last."""
    batch = ar.PromptProcessingBatch
    cases: list[tuple[Any, int, list[int]]] = [
        (mx.array(7), 1, [7]),
        (mx.array(7), 3, [7, 7, 7]),
        (mx.array([4, 5, 6]), 3, [4, 5, 6]),
        (mx.array([[4]]), 2, [4, 4]),
        (mx.array([[4], [5]]), 2, [4, 5]),
        (mx.array([[4], [5], [6]]), 2, [4, 5]),
        (mx.array([[4], [5]]), 4, [4, 5, 5, 5]),
        (mx.array([[4], [5], [6]]), 5, [4, 5, 6, 6, 6]),
        (mx.array([[4], [5], [6]]), 1, [4]),
    ]
    for given, count, wanted in cases:
        got = batch._normalize_rope_deltas(given, count)
        if got.tolist() != [[delta] for delta in wanted]:
            yield f"deltas {given.tolist()} of {count} rows are {got.tolist()}"
    own, none, lacks = (
        SimpleNamespace(_rope_deltas=mx.array([3])),
        SimpleNamespace(_rope_deltas=None),
        object(),
    )
    by_model = [batch._capture_rope_deltas(model, 2) for model in (own, none, lacks)]
    if [g if g is None else g.tolist() for g in by_model] != [[[3], [3]], [[0], [0]], None]:
        yield f"deltas of models are {by_model}"
    if by_model[1] is not None and by_model[1].dtype != mx.int32:
        yield f"deltas of none are {by_model[1].dtype}"
    of_prompt = batch._capture_rope_deltas_from_prompt_kwargs
    given = [of_prompt(kw, own, 2).tolist() for kw in ({"rope_deltas": mx.array([8])}, {}, None)]
    if given != [[[8], [8]], [[3], [3]], [[3], [3]]]:
        yield f"deltas of prompts are {given}"


caches: Any = compat.part("models.cache")


def row_cache_properties() -> list[Property]:
    """The properties of the functions that make and join caches."""
    made = ("_make_cache*", "_extend_cache", "_is_batch_cache_entry")
    return [
        Property("rows: caches", _FILE, made, _made_caches),
        Property("rows: quantized caches", _FILE, made, _quantized_caches),
        Property("rows: caches joined", _FILE, made, _joined_caches),
    ]


_PADDING = [2, 0, 1]


def _model(*made: Any) -> Any:
    return SimpleNamespace(make_cache=lambda: list(made))


def _kinds(found: Sequence[Any]) -> list[str]:
    return [type(one).__name__ for one in found]


def _made_caches() -> Iterator[str]:
    """A batch's cache of each kind, with the rows' padding and the settings of the plain one."""
    plain = (
        caches.KVCache(),
        caches.ChunkedKVCache(8),
        caches.SimpleKVCache(),
        caches.ArraysCache(2),
        caches.RotatingKVCache(max_size=6),
        caches.PoolingCache(2),
        caches.CacheList(caches.KVCache(), caches.RotatingKVCache(max_size=5)),
        (caches.KVCache(), caches.ArraysCache(1)),
    )
    found = ar._make_cache(_model(*plain), _PADDING)
    want = ["BatchKVCache"] * 3 + ["ArraysCache", "BatchRotatingKVCache", "BatchPoolingCache"]
    if _kinds(found) != [*want, "CacheList", "CacheList"]:
        yield f"caches of batches are {_kinds(found)}"
        return
    inner = [_kinds(one.caches) for one in found[6:]]
    if inner != [["BatchKVCache", "BatchRotatingKVCache"], ["BatchKVCache", "ArraysCache"]]:
        yield f"caches within lists are {inner}"
    leaves = [*found[:6], *found[6].caches, *found[7].caches]
    for one in leaves:
        padding = getattr(one, "left_padding", None)
        if padding is None or np.array(padding).tolist() != _PADDING:
            yield f"{type(one).__name__} has the padding {padding}"
    if (found[4].max_size, found[6].caches[1].max_size, found[5].ratio) != (6, 5, 2):
        yield "a cache's size or ratio is another"
    layers = SimpleNamespace(layers=[None] * 3)
    if _kinds(ar._make_cache(layers, _PADDING)) != ["BatchKVCache"] * 3:
        yield "a model that makes no caches has others"
    for wrong in (caches.RotatingKVCache(max_size=6, keep=2), object()):
        yield from refused(partial(ar._make_cache, _model(wrong), _PADDING))
    own = SimpleNamespace(to_batch=lambda padding: ("own", padding))
    if ar._make_cache(_model(own), _PADDING) != [("own", _PADDING)]:
        yield "a cache that makes its own batch does not"


def _quantized_caches() -> Iterator[str]:
    """Quantized by bits, scheme and start; the last layer is not quantized."""
    turbo, uniform, plain = "BatchTurboQuantKVCache", "BatchQuantizedKVCache", "BatchKVCache"
    cases: list[tuple[dict[str, Any], str, tuple[float, float] | None]] = [
        ({"kv_bits": 8}, uniform, None),
        ({"kv_bits": 4, "kv_group_size": 32}, uniform, None),
        ({"kv_bits": 3.5}, turbo, (3, 4)),
        ({"kv_bits": 4, "kv_quant_scheme": "turboquant"}, turbo, (4, 4)),
        ({"kv_bits": 4, "kv_quant_scheme": "turboquant", "kv_key_bits": 3}, turbo, (3, 4)),
        ({"kv_bits": 4, "kv_quant_scheme": "turboquant", "kv_value_bits": 2}, turbo, (4, 2)),
        ({"kv_bits": 3.5, "quantized_kv_start": 9, "prefill_length": 8}, plain, None),
        ({"kv_bits": 3.5, "quantized_kv_start": 9, "prefill_length": 9}, turbo, (3, 4)),
        ({"kv_bits": 8, "quantized_kv_start": 9, "prefill_length": 8}, uniform, None),
    ]
    models = (
        _model(
            caches.KVCache(), caches.ChunkedKVCache(8), caches.SimpleKVCache(), caches.KVCache()
        ),
        SimpleNamespace(layers=[None] * 4),
    )
    last = caches.should_quantize_kv_layer(3, 4)
    for options, kind, bits in cases:
        for model in models:
            found = ar._make_cache(model, _PADDING, **options)
            want = [kind] * 3 + [kind if last else plain]
            if _kinds(found) != want:
                yield f"with {options} the caches are {_kinds(found)}"
                continue
            first = found[0]
            if kind == uniform and (first.bits, first.group_size) != (
                options["kv_bits"],
                options.get("kv_group_size", 64),
            ):
                yield f"with {options} there are {first.bits} bits in groups of {first.group_size}"
            if (
                isinstance(first, BatchTurboQuantKVCache)
                and (first.key_bits, first.value_bits) != bits
            ):
                yield f"with {options} there are {first.key_bits} and {first.value_bits} bits"
            if np.array(first.left_padding).tolist() != _PADDING:
                yield f"with {options} the padding is {first.left_padding}"
    own = SimpleNamespace(to_batch=lambda padding: padding)
    mixed = {"kv_bits": 8, "kv_key_scheme": "uniform", "kv_value_scheme": "turboquant"}
    for model, options in ((_model(own, own), {"kv_bits": 8}), (models[0], mixed)):
        try:
            ar._make_cache(model, _PADDING, **options)
        except NotImplementedError:
            continue
        yield f"{options}: what is not supported is not refused"


def _fed(cache: Any, rows: int, start: int) -> Any:
    keys = mx.arange(rows * 2 * 3 * 4).reshape(rows, 2, 3, 4).astype(mx.float32) + start
    cache.update_and_fetch(keys, -keys)
    return cache


def _joined_caches() -> Iterator[str]:
    """Rows of two batches, of a batch and a stream, and of nothing."""
    for one, other in (
        (_fed(caches.BatchKVCache([0, 0]), 2, 0), _fed(caches.BatchKVCache([0]), 1, 100)),
        (_fed(caches.KVCache(), 1, 0), _fed(caches.BatchKVCache([0, 0]), 2, 100)),
        (_fed(caches.BatchKVCache([0, 0]), 2, 0), _fed(caches.KVCache(), 1, 100)),
    ):
        parts = [one.state, other.state]
        (joined,) = ar._extend_cache([one], [other])
        for at in range(2):
            want = np.concatenate([np.array(part[at]) for part in parts])
            yield from differing(joined.state[at], want, "caches joined")
    some = [caches.BatchKVCache([0])]
    if ar._extend_cache([], some) is not some or ar._extend_cache(some, None) is not some:
        yield "a batch that joins none is another"
    lists = (caches.CacheList(*some), caches.CacheList(caches.KVCache()))
    if [ar._is_batch_cache_entry(one) for one in lists] != [True, False]:
        yield "a list of plain caches is one of a batch"
    yield from refused(lambda: ar._extend_cache([object()], [object()]))
