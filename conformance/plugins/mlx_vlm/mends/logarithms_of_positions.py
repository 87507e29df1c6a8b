"""Defects of models that scale by the logarithm of a token's position."""

from __future__ import annotations

import importlib
import threading
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, replace, together, wrap
from conformance.core.mends import mend


@mend("moondream3-log-of-padding")
def no_logarithm_of_padding(hits: Hits) -> Patch:
    """No logarithm is taken of the negative positions of padding."""
    tau = importlib.import_module("mlx_vlm.models.moondream3.language").Tau

    def scale(right: Right, self: Any, states: Any, positions: Any) -> Any:
        hits.hit_if(bool((positions < 0).any()))
        return right(self, states, mx.maximum(positions, 0))

    return wrap(tau, "__call__", scale)


@mend("moondream3-one-padded-row")
def one_row_has_its_own_offset(hits: Hits) -> Patch:
    """A padded row that is left alone goes on at its own offset, as rows of a batch do."""
    language = importlib.import_module("mlx_vlm.models.moondream3.language")
    right = language.cache_position_offset

    def position(cache: Any) -> int:
        offset: Any = getattr(cache, "offset", None)
        if not isinstance(offset, mx.array) or offset.size != 1:
            return int(right(cache))
        own: Any = offset.item()
        hits.hit_if(own != right(cache))
        return int(own)

    return replace(language, "cache_position_offset", position)


@mend("inkling-scaling-of-padding", "inkling-scaling-of-padding-joint")
def scaling_goes_by_the_rows_positions(hits: Hits) -> Patch:
    """Queries of a padded row are scaled by the row's own positions, and not by the columns."""
    language = importlib.import_module("mlx_vlm.models.inkling.language")
    layer = threading.local()

    def called(right: Right, self: Any, x: Any, cache: Any = None, conv_mask: Any = None) -> Any:
        padding = getattr(cache[0], "left_padding", None) if cache is not None else None
        layer.scale = None
        if self.log_floor is not None and isinstance(padding, mx.array) and padding.any().item():
            layer.scale = self.log_floor, self.log_alpha, padding[:, None]
        return right(self, x, cache, conv_mask)

    def attend(right: Right, q: Any, k: Any, *args: Any, mask: Any, **options: Any) -> Any:
        if layer.scale is not None:
            floor, alpha, padding = layer.scale
            columns = mx.arange(k.shape[2] - q.shape[2], k.shape[2])[None] + 1
            own, common = (
                1 + alpha * mx.log(mx.maximum(positions / floor, 1))
                for positions in (columns - padding, columns)
            )
            ratio = (own / common)[:, None, :, None].astype(q.dtype)
            hits.hit_if(bool((ratio != 1).any()))
            q, mask = q * ratio, mx.where(mask > -1e29, mask * ratio, mask)
        return right(q, k, *args, mask=mask, **options)

    return together(
        wrap(language.InklingAttention, "__call__", called),
        wrap(language, "scaled_dot_product_attention", attend),
    )
