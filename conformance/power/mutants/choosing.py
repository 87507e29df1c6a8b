"""Chooses the mutants to try, and the order of the schedules that reach each of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable, Sequence

import msgspec

from conformance.power.mutants.reach import Place, Reached
from conformance.report.mutants import Mutant

# The number of cases of one family that are run before the next family is loaded.
_FIRST = 6


class Task(msgspec.Struct, frozen=True):
    """A mutant to try.

    Attributes:
        places: the places to run, in this order, until one detects it.
        reaching: the number of schedules that run it.
        shared: the families whose single streams also run it.
        unplayed: cases that reach it but have no schedule in ``places``.
    """

    library: str
    mutant: Mutant
    places: tuple[Place, ...]
    reaching: int
    shared: frozenset[str]
    unplayed: int = 0


def task_for(library: str, mutant: Mutant, reached: Reached, *, most: int) -> Task:
    """The task for a mutant.

    Args:
        most: the most schedules to run.
    """
    ordered = in_order(reached.places)
    kept = ordered[:most]
    unplayed = {place.case for place in ordered} - {place.case for place in kept}
    count = len(reached.places)
    return Task(library, mutant, kept, count, reached.families, len(unplayed))


def in_order(places: Iterable[Place]) -> tuple[Place, ...]:
    """Cheap places first, then every schedule once, then each case once, then all others.

    Schedules of one name run the same code in most families, so other schedules come before other
    families. Places that are wrong without a mutant show less, and come after the right ones.
    """
    by_cost = sorted(places, key=lambda p: (not p.good, p.seconds, p.case, p.schedule))
    cases = _first_of_each(by_cost, lambda place: place.case)
    family = cases[0].id.family if cases else ""
    quick = [place for place in cases if place.id.family == family][:_FIRST]
    played = {_name(place) for place in quick}
    named = _first_of_each((p for p in by_cost if _name(p) not in played), _name)
    # Places of a family follow each other, so that its model stays loaded.
    families = list(dict.fromkeys(place.id.family for place in named))
    blocks = [place for family in families for place in named if place.id.family == family]
    first = dict.fromkeys((*quick, *blocks, *cases))
    return (*first, *(place for place in by_cost if place not in first))


def _name(place: Place) -> tuple[str, ...]:
    """The name of a schedule, whatever its family."""
    case = place.id
    return (case.engine, case.scenario, case.dtype, place.schedule)


def _first_of_each(places: Iterable[Place], kind: Callable[[Place], Hashable]) -> list[Place]:
    found: dict[Hashable, Place] = {}
    for place in places:
        found.setdefault(kind(place), place)
    return list(found.values())


def sample(
    mutants: Sequence[Mutant], number: int | None, seed: int, reached: Callable[[Mutant], bool]
) -> tuple[Mutant, ...]:
    """Mutants drawn evenly until ``number`` of them are reached; all of them for ``None``.

    Drawn mutants that are not reached are included. The same seed gives the same sample as long as
    the mutants and the reached ones are the same.
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
