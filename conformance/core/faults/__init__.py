"""Named, switchable defects: a check that catches none of them proves nothing."""

from conformance.core.faults.declaration import Fault, Hits, fault, faults_in
from conformance.core.faults.patching import replace

__all__ = ["Fault", "Hits", "fault", "faults_in", "replace"]
