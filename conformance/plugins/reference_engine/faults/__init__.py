"""Historic defects that no library can host, put into the reference engine at run time.

What a library can host is in the ``faults/`` of its plugin.
"""

from conformance.core.faults.declaration import Fault, declared_in

FAULTS: tuple[Fault, ...] = declared_in(__name__, Fault)
