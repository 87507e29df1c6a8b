"""Faults of ``mlx_vlm.server``, imported where that is wanted.

Those of its generator are in ``plugins/mlx_vlm/faults/``.
"""

from conformance.core.faults.declaration import Fault, declared_in
from conformance.core.unavailable import Unavailable

FAULTS: tuple[Fault | Unavailable, ...] = declared_in(__name__, Fault)
