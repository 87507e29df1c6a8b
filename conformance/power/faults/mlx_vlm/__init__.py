"""Defects, put into the installed mlx-vlm at run time.

How a fault is declared is in ``core/faults/``, what several libraries share in ``shared_faults``.
"""

from conformance.core.faults.declaration import Fault, declared_in
from conformance.core.unavailable import Unavailable

FAULTS: tuple[Fault | Unavailable, ...] = declared_in(__name__, Fault)
