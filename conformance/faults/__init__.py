"""Named, switchable defects: a check that catches none of them proves nothing."""

from conformance.faults.base import Fault

__all__ = ["Fault"]
