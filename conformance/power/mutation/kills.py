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
    """What schedules of the full ladder catch.

    Attributes:
        places: ``scenario/schedule``, which ``caught`` names by their index.
        caught: by ``library/family`` and fault, the places that each catch it; if a trial ended
            with the first kill, only the places of that kill.
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
        trials: from ``conformance audit power --every-scenario``.
        libraries: each engine's library.
    """
    return _record((t for t in trials if t.complete), libraries, (), {})


def with_more(kills: Kills, trials: Iterable[Trial], libraries: Mapping[str, str]) -> Kills:
    """``kills`` with the places of missing faults added, also from trials that one kill ended.

    Args:
        kills: the record so far; faults in it keep their places.
        trials: from ``conformance audit power``; trials of other engines than the library's own
            are left out, as tiers are chosen for that engine.
        libraries: each engine's library.
    """
    own = [t for t in trials if t.engine == libraries[t.engine]]
    lacking = (t for t in own if t.fault not in kills.caught.get(_family(t, libraries), {}))
    return _record(lacking, libraries, kills.places, kills.caught)


def _record(
    trials: Iterable[Trial],
    libraries: Mapping[str, str],
    places: Iterable[str],
    caught: Mapping[str, Mapping[str, tuple[int, ...]]],
) -> Kills:
    index = {place: number for number, place in enumerate(places)}
    every = {family: dict(faults) for family, faults in caught.items()}
    for trial in trials:
        found = [f"{kill.scenario}/{name}" for kill in trial.kills for name in kill.schedules]
        if found:
            numbers = sorted(index.setdefault(place, len(index)) for place in found)
            every.setdefault(_family(trial, libraries), {})[trial.fault] = tuple(numbers)
    return Kills(tuple(index), every)


def _family(trial: Trial, libraries: Mapping[str, str]) -> str:
    return f"{libraries[trial.engine]}/{trial.family}"


def killed_in(kills: Kills, tier: Tier, families: Mapping[str, Family]) -> dict[str, set[str]]:
    """The faults that the schedules of the tier catch, by ``library/family``.

    Args:
        kills: the record of the full ladder.
        tier: the tier to run.
        families: the families by ``library/family``; missing ones are left out.
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
    """Whether a family runs the schedule in the tier, if it has the schedule at all."""
    return tier.plays(family, place.scenario) and tier.keeps(family, *place)


def read_kills() -> Kills:
    """The record in the installed package."""
    file = resources.files("conformance.power.mutation") / FILE
    return msgspec.json.decode(file.read_bytes(), type=Kills)
