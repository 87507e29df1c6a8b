"""Historic defects that no library can host, put into the reference engine at run time."""

from conformance.faults.base import Fault
from conformance.faults.reference import grammars, passes, rollback

_MODULES = (passes, rollback, grammars)
FAULTS: tuple[Fault, ...] = tuple(fault for module in _MODULES for fault in module.FAULTS)
