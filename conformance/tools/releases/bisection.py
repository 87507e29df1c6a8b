"""Finds the release in which one case became bad or good, by running few releases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from conformance.report.history import State
from conformance.tools.releases.pins import Release


@dataclass(frozen=True)
class Change:
    """A change of a case between two releases.

    Attributes:
        before: the last release tried before the change.
        after: the first release tried after the change.
        becomes: the state of the case after the change.
        unknown: releases between the two with an unknown state.
        tried: how many releases were run.
    """

    before: Release
    after: Release
    becomes: State
    unknown: tuple[Release, ...]
    tried: int

    @property
    def text(self) -> str:
        """The change in one sentence."""
        was = State.RIGHT if self.becomes is State.WRONG else State.WRONG
        kind = "bad" if self.becomes is State.WRONG else "good"
        gap = ""
        if self.unknown:
            names = ", ".join(release.version for release in self.unknown)
            gap = f", if not already one of {names}, whose state is unknown"
        return (
            f"the first {kind} release is {self.after}{gap} ({was} in {self.before.version}; "
            f"{self.tried} releases tried)"
        )


def bisect(releases: Sequence[Release], judge: Callable[[Release], State]) -> Change | None:
    """Find a change between the oldest and the newest of the releases with a known state.

    If a case changed more than once, one of the changes is found.

    Args:
        releases: from the oldest to the newest.
        judge: the state of the case in a release; called at most once for each.

    Returns:
        ``None`` if both ends have the same state, or fewer than two releases have a known one.
    """
    known: dict[Release, State] = {}

    def is_known(release: Release) -> bool:
        if release not in known:
            known[release] = judge(release)
        return known[release] is not State.UNKNOWN

    low = next((i for i in range(len(releases)) if is_known(releases[i])), None)
    high = next((i for i in reversed(range(len(releases))) if is_known(releases[i])), None)
    if low is None or high is None or known[releases[low]] is known[releases[high]]:
        return None
    while (middle := next(filter(is_known, _between(releases, low, high)), None)) is not None:
        if known[middle] is known[releases[low]]:
            low = releases.index(middle)
        else:
            high = releases.index(middle)
    return Change(
        before=releases[low],
        after=releases[high],
        becomes=known[releases[high]],
        unknown=tuple(releases[low + 1 : high]),
        tried=len(known),
    )


def _between(releases: Sequence[Release], low: int, high: int) -> list[Release]:
    """The releases strictly between two indices, the middle one first."""
    inside = range(low + 1, high)
    return [releases[i] for i in sorted(inside, key=lambda i: abs(2 * i - low - high))]
