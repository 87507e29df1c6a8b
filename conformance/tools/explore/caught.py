"""A defect that a hunt has caught, from the example that showed it to the smallest that does."""

from __future__ import annotations

import time
from dataclasses import dataclass

from conformance.core.schedule import Schedule
from conformance.core.verdict import Finding
from conformance.tools.explore.player import Player
from conformance.tools.explore.records import Discovery, ExploreUnit, Maker, Signature
from conformance.tools.explore.shrinking import smallest

SHRINK_SECONDS = 60.0


@dataclass
class Caught:
    """A defect while it is shrunk.

    Attributes:
        wanted: what it is known by.
        found: the schedule that showed it first; ``schedule`` the smallest so far.
        reproduced: whether a schedule shows it, and not only the program that it is from.
        since: ``time.monotonic`` when it was caught.
    """

    wanted: Signature
    finding: Finding
    example: int
    maker: Maker
    schedule: Schedule
    found: Schedule
    reproduced: bool
    since: float


def discovered(caught: Caught, unit: ExploreUnit, player: Player) -> Discovery:
    """The defect with a schedule that is as small as the rest of its seconds allow."""
    left = SHRINK_SECONDS - (time.monotonic() - caught.since)
    schedule, finding = caught.schedule, caught.finding
    if caught.reproduced:

        def holds(candidate: Schedule) -> bool:
            return player.shows(candidate, caught.wanted) is not None

        schedule = smallest(schedule, holds, seconds=left)
        finding = player.shows(schedule, caught.wanted) or finding
    return Discovery(
        unit.engine,
        unit.family,
        unit.dtype,
        finding.verdict,
        finding.check,
        finding.what,
        caught.example,
        caught.maker,
        caught.reproduced,
        round(time.monotonic() - caught.since, 2),
        schedule,
        caught.found,
    )
