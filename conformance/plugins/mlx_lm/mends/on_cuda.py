"""Mends of defects that occur only on CUDA; the entries name the device."""

from __future__ import annotations

import importlib
from typing import Any

import mlx.core as mx

from conformance.backend.cuda_repairs import (
    all_experts_are_asked,
    rows_are_multiplied_in_pieces,
    rows_of_experts_stand_apart,
)
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, together, wrap
from conformance.core.mends import mend

_caches: Any = importlib.import_module("mlx_lm.models.cache")

EXPERTS = mend("rows-of-experts-on-cuda", single_stream=True)(rows_of_experts_stand_apart)
PIECES = mend("quantized-product-of-33-rows-on-cuda", single_stream=True)(
    rows_are_multiplied_in_pieces
)


@mend("slice-update-of-empty-values-on-cuda", single_stream=True)
def values_without_columns_are_made_anew(hits: Hits) -> Patch:
    """Values without columns are never written into, which would leave them without data."""

    def update(right: Right, self: Any, keys: mx.array, values: mx.array) -> Any:
        kept = right(self, keys, values)
        if values.size:
            return kept
        hits.hit()
        self.values = mx.zeros(self.values.shape, self.values.dtype)
        return self.keys_and_values()

    owners = (_caches.KVCache, _caches.BatchKVCache)
    return together(*(wrap(owner, "update_and_fetch", update) for owner in owners))


@mend("glm4-moe-choice-of-experts-on-cuda", single_stream=True)
def choice_of_glm4_moe(hits: Hits) -> Patch:
    """All experts are asked, each by its score: what is within noise chooses no other expert."""
    return all_experts_are_asked("mlx_lm.models.glm4_moe", hits)
