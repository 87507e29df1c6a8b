"""Named, switchable defects: a check that catches none of them proves nothing."""

from conformance.core.faults.base import Fault, Hits, replaced

__all__ = ["Fault", "Hits", "replaced"]
