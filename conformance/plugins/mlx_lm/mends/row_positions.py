"""Positions of rows in models that use one number for the whole batch."""

from __future__ import annotations

import importlib
import threading
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models import cache as caches

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, before, replace, together, wrap
from conformance.core.mends import mend


def _of_rows(offset: Any) -> bool:
    """Whether it is one number for each row of a batch."""
    return isinstance(offset, mx.array) and offset.size > 1


@mend("dynamic-ntk-vector-offset", "reference-dynamic-ntk-vector-offset")
def dynamic_ntk_has_a_base_for_each_row(hits: Hits) -> Patch:
    """The base of dynamic NTK follows from each row's own length, without the padding behind it.

    Of a number, as in a single stream: of an array it is rounded to float32, also of one row.
    """
    rope_utils = importlib.import_module("mlx_lm.models.rope_utils")
    scope = threading.local()  # where the rows of a padded prefill end

    def prepared(cache: Any, *, lengths: Any = None, **_: Any) -> None:
        scope.ends = None if lengths is None else (cache.offset + mx.array(lengths)).tolist()

    def finalized(_: Any) -> None:
        scope.ends = None

    def call(right: Right, self: Any, x: mx.array, offset: Any = 0) -> mx.array:
        if not isinstance(offset, mx.array):
            return right(self, x, offset)  # type: ignore[no-any-return]
        hits.hit()
        starts: list[int] = np.array(offset).reshape(-1).tolist()
        columns = x.shape[2]
        ends = getattr(scope, "ends", None) or [start + columns for start in starts]
        found = []
        for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
            own = max(0, min(columns, end - start))
            tokens, padding = x[row : row + 1, :, :own], x[row : row + 1, :, own:]
            found.append(mx.concatenate([right(self, tokens, start), padding], axis=2))
        return mx.concatenate(found)

    return together(
        before(caches.BatchKVCache, "prepare", prepared),
        before(caches.BatchKVCache, "finalize", finalized),
        wrap(rope_utils.DynamicNTKScalingRoPE, "__call__", call),
    )


@mend("gpt-bigcode-vector-offset", "reference-gpt-bigcode-vector-offset")
def gpt_bigcode_has_positions_for_each_row(hits: Hits) -> Patch:
    """The range of positions begins at each row's own."""
    gpt_bigcode = importlib.import_module("mlx_lm.models.gpt_bigcode")

    def arange(start: Any, stop: Any = None) -> Any:
        if not _of_rows(start):
            return np.arange(start) if stop is None else np.arange(start, stop)
        hits.hit()
        columns = (stop - start)[0].item()
        return np.array(start)[:, None] + np.arange(columns)

    return replace(gpt_bigcode, "np", SimpleNamespace(arange=arange))


@mend("afm7-kv-reuse-offset", "afm7-kv-reuse-offset-behind-leaks", "reference-afm7-kv-reuse-offset")
def reused_keys_meet_queries_of_the_row(hits: Hits) -> Patch:
    """Queries of the layers that reuse keys are rotated by each row's own position."""
    afm7 = importlib.import_module("mlx_lm.models.afm7")
    scope = threading.local()

    def model(right: Right, self: Any, inputs: mx.array, cache: Any = None) -> mx.array:
        # Before the pass, because the caches increase their offsets.
        scope.offset = None if cache is None else cache[-1].offset
        return right(self, inputs, cache)  # type: ignore[no-any-return]

    def attend(right: Right, self: Any, *args: Any) -> mx.array:
        if not _of_rows(scope.offset):
            return right(self, *args)  # type: ignore[no-any-return]
        hits.hit()
        x, keys, values, mask = args
        rows, columns, _ = x.shape
        queries = self.q_proj(x).reshape(rows, columns, self.n_heads, -1).swapaxes(1, 2)
        queries = self.q_norm(self.rope(queries, offset=scope.offset))
        found = afm7.scaled_dot_product_attention(
            queries, keys, values, cache=None, scale=self.scale, mask=mask
        )
        return self.out_proj(found.swapaxes(1, 2).flatten(2))  # type: ignore[no-any-return]

    return together(
        wrap(afm7.AFMModel, "__call__", model),
        wrap(afm7.KVReuseAttention, "__call__", attend),
    )
