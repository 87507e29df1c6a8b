"""What faults of mlx-vlm share: the decorator, and traits that families need."""

from __future__ import annotations

from functools import partial

from conformance.core.faults.declaration import fault

mlx_vlm_fault = partial(fault, engine="mlx_vlm")

# With any cache but DeepSeek-V4.1's, whose attention gets one row at a time, without its padding.
PADDED = ("cache:*KVCache|cache:ArraysCache|cache:PoolingCache|cache:Z1TCache",)
MROPE = ("rope:M-RoPE",)
MEDIUM = "modality:image|modality:video|modality:audio"
SHOWN = "modality:image|modality:video"
ROTATING = ("cache:RotatingKVCache",)
ARRAYS = ("cache:ArraysCache",)
# Quantized at all, and by whole groups of elements.
QUANTIZABLE = ("cache:KVCache", "quantizable")
GROUPED = ("cache:KVCache", "quantizable:*")
