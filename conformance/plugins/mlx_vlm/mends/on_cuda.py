"""Repairs of what goes wrong on CUDA alone; the entries name the device."""

from __future__ import annotations

import importlib
from typing import Any

import mlx.core as mx

from conformance.backend.cuda_products import (
    rows_are_multiplied_in_pieces,
    rows_of_experts_stand_apart,
)
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, replace, together
from conformance.core.mends import mend

EXPERTS = mend("rows-of-experts-on-cuda-images", single_stream=True)(rows_of_experts_stand_apart)
PIECES = mend("quantized-product-of-33-rows-on-cuda-images", single_stream=True)(
    rows_are_multiplied_in_pieces
)


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
