"""Repairs of what goes wrong on CUDA alone; the entries name the device."""

from __future__ import annotations

import importlib
from typing import Any

import mlx.core as mx

from conformance.backend.cuda_products import ROWS_IN_A_TILE, in_pieces, standing_apart
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, replace, together, wrap
from conformance.core.mends import mend


@mend("rows-of-experts-on-cuda-images", single_stream=True)
def rows_of_experts_stand_apart(hits: Hits) -> Patch:
    """The rows that experts multiply are as far apart as they are long."""

    def product(right: Right, x: mx.array, *args: Any, **options: Any) -> Any:
        hits.hit()
        return right(standing_apart(x), *args, **options)

    return wrap(mx, "gather_mm", product)


@mend("quantized-product-of-33-rows-on-cuda-images", single_stream=True)
def rows_are_multiplied_in_pieces(hits: Hits) -> Patch:
    """Quantized products in groups of 128 are made of 32 rows at once."""

    def product(right: Right, x: mx.array, *args: Any, **options: Any) -> Any:
        if x.shape[-2] <= ROWS_IN_A_TILE or options.get("group_size", 64) < 128:
            return right(x, *args, **options)
        hits.hit()
        return in_pieces(right, x, *args, **options)

    return wrap(mx, "quantized_matmul", product)


@mend("deepseek-v41-steps-of-fp8-on-cuda", single_stream=True)
def activations_are_not_rounded(hits: Hits) -> Patch:
    """Activations are not rounded to fp8 and fp4, where what is within noise becomes a step."""
    rounded = {
        "language": ("fake_quant_fp8_ue8m0", "fake_quant_fp4_ue8m0", "fake_quant_fp4_e4m3"),
        "engram": ("fake_quant_fp8_ue8m0",),
    }

    def unrounded(x: mx.array, *_: Any) -> mx.array:
        hits.hit()
        return x

    return together(
        *(
            replace(
                importlib.import_module(f"mlx_vlm.models.deepseek_v41.{module}"), name, unrounded
            )
            for module, names in rounded.items()
            for name in names
        )
    )
