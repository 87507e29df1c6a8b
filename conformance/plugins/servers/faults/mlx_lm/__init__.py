"""Faults of ``mlx_lm.server``, imported where that is wanted.

Those of its generator are in ``plugins/mlx_lm/faults/``.
"""

from conformance.core.faults.declaration import Fault, declared_in

FAULTS: tuple[Fault, ...] = declared_in(__name__, Fault)
