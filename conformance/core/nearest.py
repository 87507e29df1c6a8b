"""The known name that is written nearly as one that a user wrote."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean NAME?`` as the end of a sentence; empty if no known name is near."""
    found = difflib.get_close_matches(name[:200], list(known), n=1)
    return f"; did you mean {found[0]}?" if found else ""
