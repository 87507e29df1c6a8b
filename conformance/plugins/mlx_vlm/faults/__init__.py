"""The defects that are re-enacted in the installed mlx-vlm."""

from conformance.core.faults.base import Fault
from conformance.plugins.mlx_vlm.faults import (
    cancellation,
    cross_attention,
    embeddings,
    lists,
    masks,
    media,
    positions,
    prefix_caching,
    quant_policy,
    quantized,
    recurrent,
    rope_deltas,
    snapshots,
    speculative,
)

_MODULES = (
    positions,
    rope_deltas,
    masks,
    lists,
    cancellation,
    media,
    embeddings,
    cross_attention,
    recurrent,
    quant_policy,
    quantized,
    prefix_caching,
    snapshots,
    speculative,
)
FAULTS: tuple[Fault, ...] = tuple(fault for module in _MODULES for fault in module.FAULTS)

__all__ = ["FAULTS"]
