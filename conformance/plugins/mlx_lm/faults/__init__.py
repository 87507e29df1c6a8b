"""Historic defects, put into mlx-lm's batch generator and its caches at run time."""

from conformance.core.faults.declaration import Fault, faults_in

FAULTS: tuple[Fault, ...] = faults_in(__name__)
