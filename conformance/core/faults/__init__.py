"""How faults are declared and patch code: a fault is a named, switchable defect.

The faults are in ``power/faults/``; ``power/mutation/`` runs them.
"""

from conformance.core.faults.declaration import Fault, Hits, declared_in, fault
from conformance.core.faults.patching import replace

__all__ = ["Fault", "Hits", "declared_in", "fault", "replace"]
