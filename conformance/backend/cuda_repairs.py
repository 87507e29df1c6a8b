"""Repairs of defects of mlx 0.32.4 on CUDA, and of ties of experts there (docs/gpu.md)."""

from __future__ import annotations

import importlib
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, replace, wrap

# mlx/backend/cuda/quantized/qmm/qmm_naive.cu: from 33 rows on its tiles have 64.
ROWS_IN_A_TILE = 32


def rows_of_experts_stand_apart(hits: Hits) -> Patch:
    """The rows that experts multiply are as far apart as they are long."""

    def product(right: Right, x: mx.array, *args: Any, **options: Any) -> Any:
        hits.hit()
        return right(x.reshape(-1).reshape(x.shape), *args, **options)

    return wrap(mx, "gather_mm", product)


def rows_are_multiplied_in_pieces(hits: Hits) -> Patch:
    """Quantized products in groups of 128 are made of 32 rows at once."""

    def product(right: Right, x: mx.array, *args: Any, **options: Any) -> Any:
        if x.shape[-2] <= ROWS_IN_A_TILE or options.get("group_size", 64) < 128:
            return right(x, *args, **options)
        hits.hit()
        pieces = [
            right(x[..., first : first + ROWS_IN_A_TILE, :], *args, **options)
            for first in range(0, x.shape[-2], ROWS_IN_A_TILE)
        ]
        return mx.concatenate(pieces, axis=-2)

    return wrap(mx, "quantized_matmul", product)


def attention_without_rows_is_empty(hits: Hits) -> Patch:
    """Attention of no queries gives an empty array at once; nothing is given to cuDNN."""

    def attention(
        right: Right, q: mx.array, k: mx.array, v: mx.array, *args: Any, **options: Any
    ) -> Any:
        if q.size:
            return right(q, k, v, *args, **options)
        hits.hit()
        return mx.zeros((*q.shape[:-1], v.shape[-1]), q.dtype)

    return wrap(mx.fast, "scaled_dot_product_attention", attention)


def all_experts_are_asked(module: str, hits: Hits) -> Patch:
    """Replace the module's ``group_expert_select``: use all experts, each weighted by its score.

    If router logits ``(..., experts)`` are closer than their dtype can distinguish, rounding
    decides which expert is chosen; sums over all experts differ only by noise.
    """

    def select(gates: mx.array, _bias: mx.array, *options: Any) -> tuple[mx.array, mx.array]:
        hits.hit()
        scores = mx.sigmoid(gates.astype(mx.float32))
        scale = options[-2]
        experts = mx.broadcast_to(mx.arange(gates.shape[-1]), gates.shape)
        return experts, scores / scores.sum(axis=-1, keepdims=True) * scale

    return replace(importlib.import_module(module), "group_expert_select", select)
