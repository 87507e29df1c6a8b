"""Chooses tiers: the cheapest schedules that catch what the full ladder catches; extends them.

All faults choose a tier. What it is worth is measured by faults that it was not chosen by.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import msgspec
import numpy as np

from conformance.core.family import Family
from conformance.core.names import DEFAULT, QUICK
from conformance.core.verdict import CaseResult
from conformance.power.mutation.kills import Kills, Place, killed_in, played
from conformance.run.tiers import OF_KINDS, Choice, Globs, Tier

QUICK_RATE = 0.98
"""The least part of the full ladder's kills that the quick tier keeps."""

_MEDIA = re.compile("image|audio|video")
# Counterexamples found earlier are always run.
_ALWAYS = "corpus"
# A schedule that took no time still has a cost.
_LEAST_SECONDS = 0.5
# How often a tier is chosen by half of the faults, and scored on the others.
_TIMES = 5


@dataclass(frozen=True)
class Ladder:
    """The places that one library's families ran in a whole run, and their cost.

    Attributes:
        seconds: the seconds of each place, over all families that run it in the default tier.
        cases: the places of each family and scenario.
        oracle_only: scenarios that run no engine, in ladder order.
        whole: the seconds of the whole run.
    """

    seconds: dict[Place, float]
    cases: dict[tuple[str, str], frozenset[Place]]
    oracle_only: tuple[str, ...]
    whole: float


def choose(
    library: str,
    results: Iterable[CaseResult],
    kills: Kills,
    families: Mapping[str, Family],
    oracle_only: tuple[str, ...],
) -> dict[str, Choice]:
    """The choice of each tier for a library, from a whole run of its engine.

    Args:
        library: the library.
        results: the results of the full ladder.
        kills: the kills of the full ladder.
        families: the families by ``library/family``.
        oracle_only: the scenarios that run no engine, in ladder order.
    """
    ran = tuple(results)
    ladder = _ladder(library, ran, families, oracle_only)
    made = {}
    for name, left_out in _chosen(library, ladder, kills).items():
        bare = Choice(0, 0, 0.0, left_out)
        tier = Tier(name, {library: bare})
        caught = killed_in(kills, tier, families)
        mine = [family for family in caught if family.startswith(f"{library}/")]
        made[name] = Choice(
            killed=sum(len(caught[family]) for family in mine),
            of=sum(len(kills.caught[family]) for family in mine),
            share=round(_seconds(library, ran, tier, families) / ladder.whole, 3),
            left_out=left_out,
        )
    return made


def _chosen(library: str, ladder: Ladder, kills: Kills) -> dict[str, Globs]:
    """What each tier leaves out."""
    wanted = [
        frozenset(_general(place) for place in places)
        for name in kills.caught
        if name.startswith(f"{library}/")
        for places in kills.of(name).values()
    ]
    model = [w for found in wanted if (w := frozenset(p for p in found if not _of_kinds(p)))]
    engine = [found for found in wanted if all(map(_of_kinds, found))]
    least = _cover(model, ladder.seconds, 1.0)
    default = least | _represented(ladder, least)
    few = _cover(model, ladder.seconds, QUICK_RATE) | _cover(engine, ladder.seconds, QUICK_RATE)
    return {
        DEFAULT: _left_out(ladder, default | frozenset(filter(_of_kinds, ladder.seconds))),
        QUICK: _left_out(ladder, few) | dict.fromkeys(ladder.oracle_only[1:], ("*",)),
    }


def cross_validated(
    library: str, kills: Kills, families: Mapping[str, Family]
) -> dict[str, tuple[int, int]]:
    """For each tier, how many pairs of unseen faults it catches, and of how many.

    The tier is chosen by a random half of the faults and scored on the others, five times. A fault
    is in one half for all families. The record has no times: each schedule costs the same. Of a
    fault whose trials ended with the first kill it has only that one: the score is a lower bound.

    Args:
        library: the library.
        kills: the kills of the full ladder.
        families: the families by ``library/family``.
    """
    own = {name: found for name, found in kills.caught.items() if name.startswith(f"{library}/")}
    places = {
        _general(place) for name in own for found in kills.of(name).values() for place in found
    }
    seconds = {place: 0.0 for place in sorted(places) if place.scenario != _ALWAYS}
    ladder = Ladder(seconds, {}, (), 0.0)
    faults = sorted({fault for found in own.values() for fault in found})
    if not faults:
        return {}
    sums: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for seed in range(_TIMES):
        mixed = np.random.default_rng(seed).permutation(faults)
        known, unseen = (
            msgspec.structs.replace(kills, caught=_only(own, set(half)))
            for half in np.array_split(mixed, 2)
        )
        for name, left_out in _chosen(library, ladder, known).items():
            tier = Tier(name, {library: Choice(0, 0, 0.0, left_out)})
            caught = sum(map(len, killed_in(unseen, tier, families).values()))
            killed, of = sums[name]
            sums[name] = killed + caught, of + sum(map(len, unseen.caught.values()))
    return dict(sums)


def _only(
    caught: Mapping[str, Mapping[str, tuple[int, ...]]], faults: Collection[str]
) -> dict[str, dict[str, tuple[int, ...]]]:
    return {
        name: {fault: places for fault, places in found.items() if fault in faults}
        for name, found in caught.items()
    }


def _ladder(
    library: str,
    results: Iterable[CaseResult],
    families: Mapping[str, Family],
    oracle_only: tuple[str, ...],
) -> Ladder:
    seconds: dict[Place, float] = defaultdict(float)
    cases: dict[tuple[str, str], frozenset[Place]] = {}
    whole = 0.0
    for result in results:
        whole += result.seconds
        if result.scenario in (*oracle_only, _ALWAYS):
            continue
        represents = families[f"{library}/{result.family}"].facts.quick
        places = {_general(Place(result.scenario, s.name)): s.seconds for s in result.schedules}
        for place, took in places.items():
            seconds[place] += took if represents or not _of_kinds(place) else 0.0
        cases[result.family, result.scenario] = frozenset(places)
    return Ladder(dict(seconds), cases, oracle_only, whole)


def _cover(
    wanted: Iterable[frozenset[Place]], seconds: Mapping[Place, float], rate: float
) -> frozenset[Place]:
    """Places that cover each of the sets, or as many of them as the rate requires."""
    left = [places & seconds.keys() for places in wanted]
    allowed = len(left) - math.ceil(len(left) * rate)
    chosen: set[Place] = set()
    while len(left := [places for places in left if places.isdisjoint(chosen)]) > allowed:
        gain: dict[Place, int] = defaultdict(int)
        for places in left:
            for place in places:
                gain[place] += 1
        chosen.add(max(sorted(gain), key=lambda p: gain[p] / (seconds[p] + _LEAST_SECONDS)))
    return frozenset(chosen)


def _represented(ladder: Ladder, chosen: frozenset[Place]) -> frozenset[Place]:
    """The cheapest further places, so that every rung about the model runs something."""
    more: set[Place] = set()
    for places in ladder.cases.values():
        open_ = {place for place in places if not _of_kinds(place)}
        if open_ and open_.isdisjoint(chosen | more):
            more.add(min(sorted(open_), key=lambda place: ladder.seconds[place]))
    return frozenset(more)


def _left_out(ladder: Ladder, chosen: frozenset[Place]) -> Globs:
    """Globs of what is left out if only these places are run; a whole scenario is ``*``."""
    left: dict[str, tuple[str, ...]] = {}
    for scenario in sorted({place.scenario for place in ladder.seconds}):
        all_of = [place for place in ladder.seconds if place.scenario == scenario]
        names = tuple(sorted(place.schedule for place in all_of if place not in chosen))
        if names:
            left[scenario] = names if len(names) < len(all_of) else ("*",)
    return left


def _seconds(
    library: str, results: Iterable[CaseResult], tier: Tier, families: Mapping[str, Family]
) -> float:
    """The part of a whole run's time that the tier takes."""
    total = 0.0
    for result in results:
        family = families[f"{library}/{result.family}"]
        if not tier.plays(family, result.scenario):
            continue
        parts = {s.name: s.seconds for s in result.schedules}
        kept = [name for name in parts if tier.keeps(family, result.scenario, name)]
        left_out = sum(parts.values()) - sum(parts[name] for name in kept or parts)
        total += result.seconds - left_out
    return total


def _general(place: Place) -> Place:
    """The place with any kind of media in place of the kind that its schedule names."""
    return Place(place.scenario, _MEDIA.sub("*", place.schedule))


def _of_kinds(place: Place) -> bool:
    return any(fnmatchcase(place.schedule, glob) for glob in OF_KINDS.get(place.scenario, ()))


Names = Mapping[str, frozenset[str]]
"""For a scenario, all its schedules, over the families of a library."""


def extended(
    tier: str,
    library: str,
    choice: Choice,
    kills: Kills,
    *,
    names: Names,
    families: Mapping[str, Family],
    rate: float,
) -> Choice:
    """The choice with as few added schedules as catch the part ``rate`` of ``kills``.

    Args:
        tier: the name of the tier.
        library: the library of the choice.
        choice: the tier's current choice for the library.
        kills: the places known to catch each fault.
        names: the names of the library's schedules.
        families: the families by ``library/family``.
        rate: the least part of the pairs of a fault and a family.
    """
    mine = {
        (name, fault): places
        for name in kills.caught
        if name.startswith(f"{library}/") and name in families
        for fault, places in kills.of(name).items()
    }

    def missed() -> list[tuple[str, frozenset[Place]]]:
        caught = killed_in(kills, Tier(tier, {library: choice}), families)
        return [(name, p) for (name, fault), p in mine.items() if fault not in caught[name]]

    allowed = len(mine) - -(-len(mine) * round(rate * 1000) // 1000)
    while len(left := missed()) > allowed:
        gain = Counter(
            place
            for name, places in left
            for place in places
            if _plays_if_kept(tier, library, choice, families[name], place)
        )
        if not gain:
            break  # only families that represent no kind miss it, and they do not run such rungs
        choice = _with(choice, max(sorted(gain), key=gain.__getitem__), names)
    return msgspec.structs.replace(choice, killed=len(mine) - len(left), of=len(mine))


def schedule_names(library: str, results: Iterable[CaseResult]) -> Names:
    """The schedules of each scenario, including schedules that a tier left out."""
    names: dict[str, set[str]] = {}
    for result in results:
        if result.engine == library:
            had = names.setdefault(result.scenario, set())
            had.update((s.name for s in result.schedules), result.left_out)
    return {scenario: frozenset(had) for scenario, had in names.items()}


def _plays_if_kept(tier: str, library: str, choice: Choice, family: Family, place: Place) -> bool:
    """Whether the family would run the schedule if the tier itself left nothing out."""
    bare = msgspec.structs.replace(choice, left_out={})
    return played(Tier(tier, {library: bare}), family, place)


def _with(choice: Choice, place: Place, names: Names) -> Choice:
    """The choice with the place added: globs that left it out become the other names."""
    globs = choice.left_out.get(place.scenario, ())
    known = names.get(place.scenario, frozenset())
    kept: set[str] = set()
    for glob in globs:
        if fnmatchcase(place.schedule, glob):
            kept |= {name for name in known if fnmatchcase(name, glob)}
        else:
            kept.add(glob)
    kept.discard(place.schedule)
    left: Globs = {**choice.left_out, place.scenario: tuple(sorted(kept))}
    return msgspec.structs.replace(choice, left_out={k: v for k, v in left.items() if v})
