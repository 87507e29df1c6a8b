"""Historic defects, put into the installed mlx-vlm at run time."""

from conformance.core.faults.declaration import Fault, faults_in

FAULTS: tuple[Fault, ...] = faults_in(__name__)
