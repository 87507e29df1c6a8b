"""Historic defects that no library can host, put into the reference engine at run time."""

from conformance.core.faults.declaration import Fault, faults_in

FAULTS: tuple[Fault, ...] = faults_in(__name__)
