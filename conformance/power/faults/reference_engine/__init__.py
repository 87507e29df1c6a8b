"""Defects that no library can host, put into the reference engine at run time.

What a library can host is in the folder of its name beside this one.
"""

from conformance.core.faults.declaration import Fault, declared_in
from conformance.core.unavailable import Unavailable

FAULTS: tuple[Fault | Unavailable, ...] = declared_in(__name__, Fault)
