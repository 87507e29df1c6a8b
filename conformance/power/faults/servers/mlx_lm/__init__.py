"""Faults of ``mlx_lm.server``, imported where that is wanted.

Those of its generator are in ``power/faults/mlx_lm/``.
"""

from conformance.core.faults.declaration import Fault, declared_in
from conformance.core.unavailable import Unavailable

FAULTS: tuple[Fault | Unavailable, ...] = declared_in(__name__, Fault)
