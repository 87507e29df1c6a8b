"""When and how mlx-vlm calls its Metal kernel of indexed attention.

The kernel's definition in numpy replaces it, so Metal is not needed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.core.faults.patching import replace
from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat

sparse: Any = compat.part("models.sparse_attention")

_NOISE = 2e-2  # Of bfloat16.
# Sizes of the calls: rows, then heads, lengths, widths, and picked keys.
_SHAPES = (
    {"rows": 2, "heads": 4, "kv": 2, "queries": 3, "keys": 9, "qk": 32, "v": 64, "top": 4},
    {"rows": 1, "heads": 2, "kv": 2, "queries": 1, "keys": 4, "qk": 64, "v": 32, "top": 1},
)


def sparse_properties() -> list[Property]:
    """The properties of ``indexed_sparse_attention``."""
    file = "mlx_vlm/models/sparse_attention.py"
    names = ("indexed_sparse_attention", "_indexed_sparse_attention_scalars")
    return [
        Property("sparse attention: by Metal", file, names, _by_metal),
        Property("sparse attention: where there is no kernel", file, names, _refused),
    ]


class WithMetal:
    """Replaces ``mlx.core``, as on a different machine."""

    def __init__(self, *, device: Any = mx.gpu, metal: bool = True) -> None:
        self.default_device = lambda: device
        self.metal = SimpleNamespace(is_available=lambda: metal)

    def __getattr__(self, name: str) -> Any:
        return getattr(mx, name)


@contextmanager
def _with_metal(**machine: Any) -> Iterator[None]:
    sparse._indexed_sparse_attention_scalars.cache_clear()
    with (
        replace(sparse, "mx", WithMetal(**machine)),
        replace(sparse, "_indexed_sparse_attention_kernel", _kernel),
    ):
        yield
    sparse._indexed_sparse_attention_scalars.cache_clear()


def attention(
    arrays: tuple[np.ndarray, np.ndarray, np.ndarray], picked: np.ndarray, scale: float
) -> np.ndarray:
    """Attention of queries ``[rows, heads, queries, size]`` to the keys picked for each query.

    Args:
        arrays: queries, keys and values.
        picked: indices of keys, ``[rows, queries, top]``; invalid indices are left out.
    """
    queries, keys, values = arrays
    rows, heads, count, _ = queries.shape
    each, out = heads // keys.shape[1], np.zeros((rows, heads, count, values.shape[-1]))
    for row, head, query in itertools.product(range(rows), range(heads), range(count)):
        at = [n for n in picked[row, query] if 0 <= n < keys.shape[2]]
        scores = keys[row, head // each, at] @ queries[row, head, query] * scale
        shares = np.exp(scores - scores.max(initial=-np.inf))
        if at:
            out[row, head, query] = shares / shares.sum() @ values[row, head // each, at]
    return out


def _kernel(*kind: Any) -> Callable[..., list[mx.array]]:
    """A replacement for the result of ``mx.fast.metal_kernel`` for a dtype, sizes and heads."""

    def call(*, inputs: Any, template: Any, **launched: Any) -> list[mx.array]:
        queries, keys, values, indices, scale, query_length, key_length = inputs
        rows, heads, count, size = queries.shape
        made = (queries.dtype, size, values.shape[-1], indices.shape[-1], heads, keys.shape[1])
        names = ("T", "QK_DIM", "V_DIM", "TOPK", "NUM_Q_HEADS", "NUM_KV_HEADS")
        # Groups of 32 x 32 threads, one for each query of each head; positions are read as int.
        shape = (rows, heads, count, values.shape[-1])
        wanted: dict[str, Any] = {
            "grid": (1024, rows * heads * count, 1),
            "threadgroup": (1024, 1, 1),
            "output_shapes": [shape],
            "output_dtypes": [queries.dtype],
        }
        described = {**dict(zip(names, made, strict=True)), "GQA_FACTOR": heads // keys.shape[1]}
        dtypes = [array.dtype for array in (indices, scale, query_length, key_length)]
        if (kind, dict(template), launched) != (made, described, wanted):
            raise ValueError(f"a kernel of {kind} is run with {template}, {launched}")
        if dtypes != [mx.int32, mx.float32, mx.int32, mx.int32]:
            raise ValueError(f"a kernel is run with {dtypes}")
        if (query_length.tolist(), key_length.tolist()) != ([count], [keys.shape[2]]):
            raise ValueError(f"a kernel is run with {query_length}, {key_length}")
        arrays = tuple(np.array(a.astype(mx.float32)) for a in (queries, keys, values))
        found = attention(arrays, np.array(indices), scale.item())  # type: ignore[arg-type]
        return [mx.array(found).astype(queries.dtype)]

    return call


def _drawn(dtype: mx.Dtype, sizes: dict[str, int]) -> dict[str, Any]:
    draw, rows = np.random.default_rng(5), sizes["rows"]

    def of(heads: str, length: str, width: str) -> mx.array:
        shape = (rows, sizes[heads], sizes[length], sizes[width])
        return mx.array(draw.normal(0, 1, shape)).astype(dtype)

    picked = draw.integers(-1, sizes["keys"], (rows, sizes["queries"], sizes["top"]))
    return {
        "queries": of("heads", "queries", "qk"),
        "keys": of("kv", "keys", "qk"),
        "values": of("kv", "keys", "v"),
        "indices": mx.array(picked).astype(mx.uint32 if picked.min() >= 0 else mx.int64),
        "scale": 0.3,
    }


def _by_metal() -> Iterator[str]:
    """Each query attends to its own keys, in all cases that the kernel supports."""
    for dtype, sizes in itertools.product((mx.bfloat16, mx.float16), _SHAPES):
        given = _drawn(dtype, sizes)
        ratio = sizes["keys"] // sizes["top"]
        arrays = tuple(
            np.array(given[name].astype(mx.float32)) for name in ("queries", "keys", "values")
        )
        want = attention(arrays, np.array(given["indices"]), 0.3)  # type: ignore[arg-type]
        for options in ({}, {"min_sparse_ratio": ratio}):
            with _with_metal():
                got = sparse.indexed_sparse_attention(**given, **options)
            if got is None:
                yield f"{sizes} of {dtype} with {options} has no kernel"
            elif got.dtype != dtype or not np.allclose(
                np.array(got.astype(mx.float32)), want, atol=_NOISE
            ):
                yield f"{sizes} of {dtype} with {options}: not what attention gives"
        with _with_metal():
            if sparse.indexed_sparse_attention(**given, min_sparse_ratio=ratio + 1) is not None:
                yield f"{sizes}: a kernel is run though most keys are picked"


def _refused() -> Iterator[str]:
    """Unsupported arrays or machines give no result, so the model attends by itself."""
    given = _drawn(mx.bfloat16, _SHAPES[0])
    queries, keys, values = (given[name] for name in ("queries", "keys", "values"))
    others: list[dict[str, Any]] = [
        *({name: given[name][0]} for name in ("queries", "keys", "values", "indices")),
        *({name: given[name].astype(mx.float16)} for name in ("keys", "values")),
        {name: given[name].astype(mx.float32) for name in ("queries", "keys", "values")},
        {"keys": keys[:1]},
        {"values": values[:1]},
        {"indices": given["indices"][:1]},
        {"indices": given["indices"][:, :2]},
        {"indices": given["indices"][..., :0]},
        {"values": values[:, :1]},
        {"values": values[:, :, :8]},
        {"keys": mx.concatenate([keys, keys], axis=-1)},
        {"queries": queries[:, :3]},
        {"queries": queries[..., :16], "keys": keys[..., :16]},
        {"values": values[..., :48]},
    ]
    for other in others:
        with _with_metal():
            if sparse.indexed_sparse_attention(**{**given, **other}) is not None:
                shapes = {name: (array.shape, array.dtype) for name, array in other.items()}
                yield f"a kernel is run with {shapes}"
    machines: list[dict[str, Any]] = [{"device": mx.cpu}, {"metal": False}]
    for machine in machines:
        with _with_metal(**machine):
            if sparse.indexed_sparse_attention(**given) is not None:
                yield f"a kernel is run on a machine with {machine}"
