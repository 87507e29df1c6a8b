"""Faults of ``mlx_vlm.server``, imported where that is wanted.

Those of its generator are in ``plugins/mlx_vlm/faults/``.
"""

from conformance.core.faults.declaration import Fault, declared_in

FAULTS: tuple[Fault, ...] = declared_in(__name__, Fault)
