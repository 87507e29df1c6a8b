"""Mends of defects that occur only on CUDA; the entries name the device."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from conformance.backend.cuda_repairs import (
    all_experts_are_asked,
    attention_without_rows_is_empty,
    rows_are_multiplied_in_pieces,
    rows_of_experts_stand_apart,
)
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, replace, together, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm.library_parts import part

EXPERTS = mend("rows-of-experts-on-cuda-images", single_stream=True)(rows_of_experts_stand_apart)
PIECES = mend("quantized-product-of-33-rows-on-cuda-images", single_stream=True)(
    rows_are_multiplied_in_pieces
)
NO_ROWS = mend(
    "attention-without-rows-on-cuda", "attention-without-rows-on-cuda-zaya1", single_stream=True
)(attention_without_rows_is_empty)


@mend("youtu-vl-cumsum-of-one-element", single_stream=True)
def sides_of_images_are_columns(hits: Hits) -> Patch:
    """The sides of images are laid out in columns: the product of one image has the stride 1."""
    encoder = part("models.youtu_vl.vision").Siglip2Encoder

    def encode(right: Right, self: Any, states: mx.array, sides: mx.array) -> Any:
        hits.hit()
        return right(self, states, mx.stack([sides[:, 0], sides[:, 1]]).T)

    return wrap(encoder, "__call__", encode)


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
            replace(part(f"models.deepseek_v41.{module}"), name, unrounded)
            for module, names in rounded.items()
            for name in names
        )
    )


@mend("deepseek-v3-choice-of-experts-on-cuda", single_stream=True)
def choice_of_deepseek_v3(hits: Hits) -> Patch:
    """All experts are asked, each by its score: what is within noise chooses no other expert."""
    return all_experts_are_asked("mlx_vlm.models.deepseek_v3.language", hits)
