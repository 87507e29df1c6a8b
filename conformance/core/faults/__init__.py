"""What a fault is, how it is declared, and how it patches code: named, switchable defects.

The faults themselves are in ``power/faults/``, what runs them in ``power/mutation/``.
"""

from conformance.core.faults.declaration import Fault, Hits, declared_in, fault
from conformance.core.faults.patching import replace

__all__ = ["Fault", "Hits", "declared_in", "fault", "replace"]
