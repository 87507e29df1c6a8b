"""What a plugin declares its faults with: ``from conformance.faults import fault``."""

from conformance.core.faults import Fault, Hits, fault, replace

__all__ = ["Fault", "Hits", "fault", "replace"]
