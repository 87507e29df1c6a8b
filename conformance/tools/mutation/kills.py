"""Which schedules catch which fault in which family: the record from which tiers are chosen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import resources
from typing import NamedTuple

import msgspec

from conformance.core.family import Family
from conformance.report.trials import Trial
from conformance.run.tiers import Tier

FILE = "kills.json"


class Place(NamedTuple):
    """A schedule of a scenario."""

    scenario: str
    schedule: str


class Kills(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What every schedule of the full ladder catches, of complete trials only.

    Attributes:
        places: ``scenario/schedule``, which ``caught`` names by their index.
        caught: by ``library/family`` and fault, the places each of which catches it.
    """

    places: tuple[str, ...]
    caught: dict[str, dict[str, tuple[int, ...]]]

    def of(self, family: str) -> dict[str, frozenset[Place]]:
        """The places that catch each fault in ``library/family``; none if it was not tried."""
        return {
            fault: frozenset(Place(*self.places[index].split("/")) for index in indices)
            for fault, indices in self.caught.get(family, {}).items()
        }


def kills_of(trials: Iterable[Trial], libraries: Mapping[str, str]) -> Kills:
    """The record of the trials that were tried in every scenario and killed.

    Args:
        trials: of ``conformance audit power --every-scenario``.
        libraries: each engine's library.
    """
    index: dict[str, int] = {}
    caught: dict[str, dict[str, tuple[int, ...]]] = {}
    for trial in trials:
        found = [f"{kill.scenario}/{name}" for kill in trial.kills for name in kill.schedules]
        if trial.complete and found:
            family = f"{libraries[trial.engine]}/{trial.family}"
            numbers = sorted(index.setdefault(place, len(index)) for place in found)
            caught.setdefault(family, {})[trial.fault] = tuple(numbers)
    return Kills(tuple(index), caught)


def killed_in(kills: Kills, tier: Tier, families: Mapping[str, Family]) -> dict[str, set[str]]:
    """The faults that the schedules of the tier catch, by ``library/family``.

    Args:
        kills: of the full ladder.
        tier: what is played.
        families: by ``library/family``; one that is gone is left out.
    """
    return {
        name: {
            fault
            for fault, places in kills.of(name).items()
            if any(played(tier, families[name], place) for place in places)
        }
        for name in kills.caught
        if name in families
    }


def played(tier: Tier, family: Family, place: Place) -> bool:
    """Whether a family plays that schedule in the tier, if it has it at all."""
    return tier.plays(family, place.scenario) and tier.keeps(family, *place)


def read_kills() -> Kills:
    """The record in the installed package."""
    file = resources.files("conformance.tools.mutation") / FILE
    return msgspec.json.decode(file.read_bytes(), type=Kills)
