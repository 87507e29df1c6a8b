"""Chooses a token's experts so that rounding cannot decide."""

from __future__ import annotations

import importlib
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, replace


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
