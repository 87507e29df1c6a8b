"""Inkling's mask in float16."""

from __future__ import annotations

import importlib
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, wrap
from conformance.core.mends import mend


@mend("inkling-mask-beyond-float16", "inkling-mask-beyond-float16-joint")
def padding_attends_to_something(hits: Hits) -> Patch:
    """A query of padding, whose keys are all masked by -inf, attends to all of them instead."""
    language = importlib.import_module("mlx_vlm.models.inkling.language")

    def masked(right: Right, *args: Any, **options: Any) -> mx.array:
        mask: mx.array = right(*args, **options)
        if mask.dtype != mx.float16:
            return mask
        blind = (mask == -mx.inf).all(axis=-1, keepdims=True)
        hits.hit_if(bool(blind.any()))
        return mx.where(blind, mx.zeros_like(mask), mask)

    return wrap(language, "banded_additive_mask", masked)
