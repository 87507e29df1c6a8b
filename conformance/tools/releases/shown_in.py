"""The generated record of releases that were seen to have known defects."""

from __future__ import annotations

from pathlib import Path

from conformance.checks.expectations.loading import SHOWN, shown_in
from conformance.tools.releases.refreshing import Fate, Refreshed

__all__ = ["SHOWN", "with_release"]


def with_release(path: Path, found: Refreshed) -> dict[str, dict[str, list[str]]]:
    """The content of the file with the entries that the release still has."""
    known = {library: dict(releases) for library, releases in shown_in(path.parent).items()}
    still = sorted(one.entry.id for one in found.entries if one.fate is Fate.STILL)
    known.setdefault(found.release.library, {})[found.release.version] = still
    return known
