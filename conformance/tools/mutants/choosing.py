"""Which mutants are tried, and in which order the schedules that reach one are played."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

import msgspec

from conformance.report.mutants import Mutant
from conformance.tools.mutants.reach import Place, Reached

# So many cases of one family are played before another family is loaded.
_FIRST = 6


class Task(msgspec.Struct, frozen=True):
    """A mutant to try.

    Attributes:
        places: that are played, in this order, until one detects it.
        reaching: how many schedules run it.
        shared: the families whose single streams run it, too.
        unplayed: cases that reach it and of which ``places`` has no schedule.
    """

    library: str
    mutant: Mutant
    places: tuple[Place, ...]
    reaching: int
    shared: frozenset[str]
    unplayed: int = 0


def task_for(library: str, mutant: Mutant, reached: Reached, *, most: int) -> Task:
    """What to play with a mutant.

    Args:
        most: schedules that are played at most.
    """
    ordered = in_order(reached.places)
    kept = ordered[:most]
    unplayed = {place.case for place in ordered} - {place.case for place in kept}
    count = len(reached.places)
    return Task(library, mutant, kept, count, reached.families, len(unplayed))


def in_order(places: Iterable[Place]) -> tuple[Place, ...]:
    """The cheapest schedule of each case, family by family, then all others by their cost.

    The family with the cheapest one comes first, with a few cases; a schedule that is wrong
    without a mutant shows less, and comes after those that are right.
    """
    by_cost = sorted(places, key=lambda p: (not p.good, p.seconds, p.case, p.schedule))
    best: dict[str, Place] = {}
    for place in by_cost:
        best.setdefault(place.case, place)
    firsts = list(best.values())
    families = list(dict.fromkeys(place.id.family for place in firsts))
    quick = [place for place in firsts if place.id.family in families[:1]][:_FIRST]
    blocks = [p for f in families for p in firsts if p.id.family == f and p not in quick]
    chosen = {(place.case, place.schedule) for place in firsts}
    return (*quick, *blocks, *(p for p in by_cost if (p.case, p.schedule) not in chosen))


def sample(
    mutants: Sequence[Mutant], number: int | None, seed: int, reached: Callable[[Mutant], bool]
) -> tuple[Mutant, ...]:
    """Mutants drawn evenly until so many of them are reached; all of them for ``None``.

    Those that are drawn and not reached come with them. The same seed gives the same ones as long
    as the mutants and what is reached are the same.
    """
    if number is None:
        return tuple(mutants)
    drawn = list(mutants)
    random.Random(seed).shuffle(drawn)
    taken: list[Mutant] = []
    for mutant in drawn:
        if number == 0:
            break
        taken.append(mutant)
        number -= reached(mutant)
    return tuple(taken)
