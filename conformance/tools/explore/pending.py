"""A defect that exploring found, from its first example to its smallest."""

from __future__ import annotations

import time
from dataclasses import dataclass

from conformance.core.schedule import Schedule
from conformance.core.verdict import Finding
from conformance.tools.explore.player import Player
from conformance.tools.explore.results import Discovery, ExploreUnit, Maker, Signature
from conformance.tools.explore.shrinking import smallest

SHRINK_SECONDS = 60.0


@dataclass
class PendingDiscovery:
    """A defect while its schedule is shrunk.

    Attributes:
        wanted: its signature.
        found: the schedule that found it first; ``schedule`` is the smallest so far.
        reproduced: whether a schedule reproduces it, rather than only the program that found it.
        since: ``time.monotonic`` when it was found.
    """

    wanted: Signature
    finding: Finding
    example: int
    maker: Maker
    schedule: Schedule
    found: Schedule
    reproduced: bool
    since: float


def discovered(pending: PendingDiscovery, unit: ExploreUnit, player: Player) -> Discovery:
    """The defect with the smallest schedule found in the remaining seconds."""
    left = SHRINK_SECONDS - (time.monotonic() - pending.since)
    schedule, finding = pending.schedule, pending.finding
    if pending.reproduced:

        def holds(candidate: Schedule) -> bool:
            return player.shows(candidate, pending.wanted) is not None

        schedule = smallest(schedule, holds, seconds=left)
        finding = player.shows(schedule, pending.wanted) or finding
    return Discovery(
        unit.engine,
        unit.family,
        unit.dtype,
        finding.verdict,
        finding.check,
        finding.what,
        pending.example,
        pending.maker,
        pending.reproduced,
        round(time.monotonic() - pending.since, 2),
        schedule,
        pending.found,
    )
