"""Repairs of what goes wrong on CUDA alone; the entries name the device."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from conformance.backend.cuda_products import ROWS_IN_A_TILE, in_pieces, standing_apart
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, wrap
from conformance.core.mends import mend


@mend("rows-of-experts-on-cuda", single_stream=True)
def rows_of_experts_stand_apart(hits: Hits) -> Patch:
    """The rows that experts multiply are as far apart as they are long."""

    def product(right: Right, x: mx.array, *args: Any, **options: Any) -> Any:
        hits.hit()
        return right(standing_apart(x), *args, **options)

    return wrap(mx, "gather_mm", product)


@mend("quantized-product-of-33-rows-on-cuda", single_stream=True)
def rows_are_multiplied_in_pieces(hits: Hits) -> Patch:
    """Quantized products in groups of 128 are made of 32 rows at once."""

    def product(right: Right, x: mx.array, *args: Any, **options: Any) -> Any:
        if x.shape[-2] <= ROWS_IN_A_TILE or options.get("group_size", 64) < 128:
            return right(x, *args, **options)
        hits.hit()
        return in_pieces(right, x, *args, **options)

    return wrap(mx, "quantized_matmul", product)
