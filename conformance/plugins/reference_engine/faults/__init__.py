"""Historic defects that no library can host, put into the reference engine at run time."""

from conformance.core.faults.base import Fault
from conformance.plugins.reference_engine.faults import grammars, passes, rollback

_MODULES = (passes, rollback, grammars)
FAULTS: tuple[Fault, ...] = tuple(fault for module in _MODULES for fault in module.FAULTS)
