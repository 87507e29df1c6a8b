"""Extends tiers by schedules that catch newer faults, without choosing all from scratch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

import msgspec

from conformance.core.family import Family
from conformance.core.verdict import CaseResult
from conformance.power.mutation.kills import Kills, Place, killed_in, played
from conformance.run.tiers import Choice, Globs, Tier

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
