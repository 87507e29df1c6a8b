"""LongRoPE, whose factors are chosen once for a call."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_vlm.models import rope_utils

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, wrap
from conformance.core.mends import mend


@mend(
    "su-rope-by-longest-row",
    "longrope-of-longest-row",
    "longrope-of-longest-row-images",
    "longrope-of-longest-row-sounds",
    "longrope-of-pieces",
    single_stream=True,
)
def factors_are_each_tokens_own(hits: Hits) -> Patch:
    """Each token takes the short or the long factors by its own position.

    Only so the same tokens are rotated alike in pieces of any size, and beside any other row.
    """

    def rotated(right: Right, self: Any, x: mx.array, offset: Any = 0) -> Any:
        columns = mx.arange(x.shape[-2])[:, None]
        ends = mx.array(offset, dtype=mx.int32).reshape(-1, 1, 1, 1) + columns + 1
        long = ends > self.original_max_position_embeddings
        # The library uses the long factors for all rows if one row needs them.
        if mx.all(long == mx.any(long)).item():
            return right(self, x, offset)
        hits.hit()
        sides = ((self._long_freqs, self._long_scale), (self._short_freqs, self._short_scale))
        return mx.where(long, *(_rope(self, x, offset, *side) for side in sides))

    return wrap(rope_utils.SuScaledRoPE, "__call__", rotated)


def _rope(self: Any, x: mx.array, offset: Any, freqs: mx.array, scale: mx.array) -> mx.array:
    scaled = scale.astype(x.dtype) * x[..., : self.dim]
    x = mx.concatenate([scaled, x[..., self.dim :]], axis=-1)
    return mx.fast.rope(
        x, self.dim, traditional=False, base=None, scale=1.0, offset=offset, freqs=freqs
    )
