"""Defects, put into mlx-lm's batch generator and its caches at run time.

How a fault is declared is in ``core/faults/``, what several libraries share in ``shared_faults``.
"""

from conformance.core.faults.declaration import Fault, declared_in
from conformance.core.unavailable import Unavailable
from conformance.plugins.mlx_lm.compat import prefills_in_pieces

# None before 0.31.2, whose generator does not have the parts that they change.
FAULTS: tuple[Fault | Unavailable, ...] = (
    declared_in(__name__, Fault) if prefills_in_pieces() else ()
)
