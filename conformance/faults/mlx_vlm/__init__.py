"""The defects that are re-enacted in the installed mlx-vlm."""

from conformance.faults.base import Fault
from conformance.faults.mlx_vlm import cancellation, lists, masks, positions, rope_deltas

FAULTS: tuple[Fault, ...] = tuple(
    fault
    for module in (positions, rope_deltas, masks, lists, cancellation)
    for fault in module.FAULTS
)

__all__ = ["FAULTS"]
