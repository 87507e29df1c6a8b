"""Historic defects, put into mlx-lm's batch generator and its caches at run time.

How a fault is declared is in ``core/faults/``, what several libraries share in ``backend/``.
"""

from conformance.core.faults.declaration import Fault, declared_in

FAULTS: tuple[Fault, ...] = declared_in(__name__, Fault)
