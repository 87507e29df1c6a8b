"""The first bad, or first good, release of one case, with as few releases run as can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from conformance.report.history import State
from conformance.tools.releases.pins import Release


@dataclass(frozen=True)
class Change:
    """Where a case changed.

    Attributes:
        before: the last release that was tried before the change, and how it was.
        after: the first release after the change that was tried.
        becomes: what the case is from there on.
        untold: releases between the two that could not tell.
        tried: how many releases were run.
    """

    before: Release
    after: Release
    becomes: State
    untold: tuple[Release, ...]
    tried: int

    @property
    def text(self) -> str:
        """One sentence."""
        was = State.RIGHT if self.becomes is State.WRONG else State.WRONG
        kind = "bad" if self.becomes is State.WRONG else "good"
        gap = ""
        if self.untold:
            names = ", ".join(release.version for release in self.untold)
            gap = f", if not already one of {names}, which cannot tell"
        return (
            f"the first {kind} release is {self.after}{gap} ({was} in {self.before.version}; "
            f"{self.tried} releases tried)"
        )


def bisect(releases: Sequence[Release], judge: Callable[[Release], State]) -> Change | None:
    """Find a change between the oldest and the newest of the releases that can tell.

    Where a case changed more than once, one of the changes is found.

    Args:
        releases: from the oldest to the newest.
        judge: how the case is in a release; asked once of each at most.

    Returns:
        ``None`` where the ends are alike, or fewer than two releases can tell.
    """
    known: dict[Release, State] = {}

    def told(release: Release) -> bool:
        if release not in known:
            known[release] = judge(release)
        return known[release] is not State.UNTOLD

    low = next((i for i in range(len(releases)) if told(releases[i])), None)
    high = next((i for i in reversed(range(len(releases))) if told(releases[i])), None)
    if low is None or high is None or known[releases[low]] is known[releases[high]]:
        return None
    while (middle := next(filter(told, _between(releases, low, high)), None)) is not None:
        if known[middle] is known[releases[low]]:
            low = releases.index(middle)
        else:
            high = releases.index(middle)
    return Change(
        before=releases[low],
        after=releases[high],
        becomes=known[releases[high]],
        untold=tuple(releases[low + 1 : high]),
        tried=len(known),
    )


def _between(releases: Sequence[Release], low: int, high: int) -> list[Release]:
    """Those strictly between two, the middle one first."""
    inside = range(low + 1, high)
    return [releases[i] for i in sorted(inside, key=lambda i: abs(2 * i - low - high))]
