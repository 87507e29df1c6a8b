"""Mends of known defects of mlx-lm, each of which has an entry in `expectations/`.

How a mend is declared is in `core/mends.py`. A module of a model is imported when it is mended.
"""

from conformance.core.faults.declaration import declared_in
from conformance.core.library_source import older
from conformance.core.mends import Mend
from conformance.core.unavailable import Unavailable

MENDS: tuple[Mend | Unavailable, ...] = declared_in(
    __name__, Mend, partly=older("mlx-lm", "0.32.0")
)
