"""Historic defects, put into mlx-lm's batch generator and its caches at run time.

How a fault is declared is in ``core/faults/``, what several libraries share in ``backend/``.
"""

from conformance.core.faults.declaration import Fault, faults_in

FAULTS: tuple[Fault, ...] = faults_in(__name__)
