"""Repairs of what goes wrong on CUDA alone; the entries name the device."""

from conformance.backend.cuda_products import (
    rows_are_multiplied_in_pieces,
    rows_of_experts_stand_apart,
)
from conformance.core.mends import mend

EXPERTS = mend("rows-of-experts-on-cuda", single_stream=True)(rows_of_experts_stand_apart)
PIECES = mend("quantized-product-of-33-rows-on-cuda", single_stream=True)(
    rows_are_multiplied_in_pieces
)
