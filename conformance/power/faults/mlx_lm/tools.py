"""What faults of mlx-lm share: its parts by short names, and where offsets and masks pass."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import BatchKVCache, BatchRotatingKVCache

from conformance.core.faults.declaration import Hits, fault
from conformance.core.faults.patching import Patch, Right, replace, wrap_each
from conformance.power.faults.shared_faults import differs

# The attribute `mlx_lm.generate` is the function of that name.
generate: Any = importlib.import_module("mlx_lm.generate")
mlx_lm_fault = partial(fault, engine="mlx_lm")

# The source of faults made of mutants of the library that no check saw.
SURVIVORS = "mutants that survived"

ATTENTION = "cache:KVCache|cache:RotatingKVCache"
FULL = "cache:KVCache"
ROTATING = "cache:RotatingKVCache"
RECURRENT = "cache:ArraysCache"
ROPE = "rope:*RoPE*"
KV_CACHES = (BatchKVCache, BatchRotatingKVCache)


def padding_as(change: Callable[[mx.array], mx.array], hits: Hits) -> Patch:
    """The attention's mask is made for ``change(left_padding)`` in place of the rows' padding."""

    def make_mask(right: Right, self: Any, *args: Any, **options: Any) -> Any:
        true, wrong = self.left_padding, change(self.left_padding)
        # Padding that has been trimmed away is negative, and like none.
        hits.hit_if(differs(mx.maximum(true, 0), mx.maximum(wrong, 0)))
        with replace(self, "left_padding", wrong):
            return right(self, *args, **options)

    return wrap_each(KV_CACHES, "make_mask", make_mask)
