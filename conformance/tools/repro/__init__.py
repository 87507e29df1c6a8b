"""A failing case as a script of at most 60 lines that needs only mlx, NumPy and the library.

Hand-written scripts for upstream defects belong in ``docs/defects/``.
"""

from conformance.tools.repro.found import Found
from conformance.tools.repro.script import MOST_LINES, write_scripts
from conformance.tools.repro.search import Wanted, find, with_plain_config
from conformance.tools.repro.trying import Tried, shown_by, try_script

__all__ = [
    "MOST_LINES",
    "Found",
    "Tried",
    "Wanted",
    "find",
    "shown_by",
    "try_script",
    "with_plain_config",
    "write_scripts",
]
