"""Names that users write: of tiers, of engines by globs, and the nearest known name.

The tiers' data is elsewhere, so that a pytest run without cases does not read it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from fnmatch import fnmatchcase

QUICK, DEFAULT, FULL = TIERS = ("quick", "default", "full")


def usual_tier(*, named: bool) -> str:
    """The default tier of a run.

    Args:
        named: whether the run names families or scenarios, which then run in full.
    """
    return FULL if named else DEFAULT


_SLOW = ("server", "tensor_parallel", "pipeline")  # they start processes of their own


def means(glob: str, name: str) -> bool:
    """Whether the glob means the engine: ``mlx_*`` means no server, ``mlx_*_server`` two."""
    unsaid = any(f"_{kind}" in name and kind not in glob for kind in _SLOW)
    return glob == name or (fnmatchcase(name, glob) and not unsaid)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean NAME?`` as the end of a sentence; empty if no known name is near."""
    found = difflib.get_close_matches(name[:200], list(known), n=1)
    return f"; did you mean {found[0]}?" if found else ""
