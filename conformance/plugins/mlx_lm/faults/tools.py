"""What faults of mlx-lm share: its parts by short names, and where offsets and masks pass."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import BatchKVCache, BatchRotatingKVCache

from conformance.core.faults.base import Fault, Hits
from conformance.core.faults.patching import Injection, differs, exchange, exchange_in

# The attribute `mlx_lm.generate` is the function of that name.
generate: Any = importlib.import_module("mlx_lm.generate")
mlx_lm_fault = partial(Fault, engine="mlx_lm")

ATTENTION = "cache:KVCache|cache:RotatingKVCache"
FULL = "cache:KVCache"
ROTATING = "cache:RotatingKVCache"
RECURRENT = "cache:ArraysCache"
ROPE = "rope:*RoPE*"
KV_CACHES = (BatchKVCache, BatchRotatingKVCache)


def offsets(change: Callable[[mx.array, mx.array], mx.array]) -> Injection:
    """Positions at which rows are rotated: ``change`` gets what is rotated and the rows' offsets.

    Acts where all layers pass, so that it hits only what is rotated at all.
    """

    def spoil(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def rope(x: mx.array, *args: Any, offset: Any, **options: Any) -> Any:
            if isinstance(offset, mx.array) and offset.ndim == 1:
                wrong = change(x, offset)
                if differs(wrong, offset):
                    hits.hit()
                offset = wrong
            return right(x, *args, offset=offset, **options)

        return rope

    return exchange(mx.fast, "rope", spoil)


def padding(change: Callable[[mx.array], mx.array]) -> Injection:
    """The left padding of each row, as the attention's mask sees it."""

    def spoil(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def make_mask(self: Any, *args: Any, **options: Any) -> Any:
            true = self.left_padding
            self.left_padding = change(true)
            # Padding that has been trimmed away is negative, and like none.
            if differs(mx.maximum(true, 0), mx.maximum(self.left_padding, 0)):
                hits.hit()
            try:
                return right(self, *args, **options)
            finally:
                self.left_padding = true

        return make_mask

    return exchange_in(KV_CACHES, "make_mask", spoil)


def shift(items: Sequence[Any], keep: Sequence[int]) -> list[Any]:
    """What a list holds that is cut to the new number of rows, not filtered by row."""
    return list(items[: len(keep)])
