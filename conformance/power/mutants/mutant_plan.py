"""Plans a library's mutants: which are tried where, and the known fate of the others."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from conformance.core.errors import ConformanceError
from conformance.power.mutants.reach import (
    Map,
    Place,
    Reach,
    Reached,
    ReachFolder,
    merged,
    reach_key,
)
from conformance.power.mutants.reviewed import Reviewed
from conformance.power.mutants.targets import BESIDE, files_of, needing_extra
from conformance.report.mutants import Fate, Mutant, MutantResult
from conformance.run.registry import Registry, select

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


@dataclass(frozen=True)
class Recording:
    """The lines that one family's schedules run: recorded unless they are known.

    Attributes:
        modules: the names of the recorded files; each machine finds their paths itself.
    """

    library: str
    family: str
    modules: tuple[str, ...]
    seed: int = 0

    def known(self, registry: Registry) -> Reach | None:
        """The earlier record for the same code; ``None`` if there is none."""
        return ReachFolder().read(self.library, self.family, self._key(registry))

    def scenarios(self, registry: Registry) -> tuple[str, ...]:
        """The scenarios that the family runs; each can be recorded by itself."""
        family = registry.families[self.library, self.family]
        found = {
            scenario.name: None
            for engine in registry.engines.values()
            if engine.library == self.library
            for scenario in registry.scenarios_for(engine, family)
            if not scenario.oracle_only
        }
        return tuple(found)

    def make(self, registry: Registry, scenario: str) -> Reach:
        """Run the family's cases of one scenario.

        Raises:
            ModelError: the family's model cannot be loaded.
            ConformanceError: coverage.py is not installed.
        """
        with needing_extra():
            recording = importlib.import_module("conformance.power.mutants.line_recording")
        key, scenarios = self._key(registry), (scenario,)
        found: Reach = recording.reach_of(
            registry,
            self.library,
            self.family,
            files_of(self.library, self.modules),
            key=key,
            seed=self.seed,
            scenarios=scenarios,
        )
        return found

    def keep(self, parts: Sequence[Reach]) -> Reach:
        """Merge the records of the scenarios, and keep the result for later runs."""
        whole = merged(parts)
        ReachFolder().write(whole)
        return whole

    def _key(self, registry: Registry) -> str:
        files = files_of(self.library, self.modules)
        return reach_key(registry.families[self.library, self.family], files, self.seed)


def families_of(registry: Registry, library: str, globs: Sequence[str]) -> tuple[str, ...]:
    """The families to run: the named ones, else some of each kind of cache and rotation.

    Raises:
        ConformanceError: the library has no family of this name.
    """
    own = {f.name: f for (name, _), f in registry.families.items() if name == library}
    if globs:
        return select(own, globs, what="family")
    beside = BESIDE.get(library, ())
    return tuple(name for name, family in own.items() if family.facts.quick or name in beside)


@dataclass(frozen=True)
class Plan:
    """The mutants of a library.

    Attributes:
        decided: mutants whose fate is known without a run.
        tasks: the other mutants, in the order in which they are tried.
    """

    decided: tuple[MutantResult, ...]
    tasks: tuple[Task, ...]


def plan(
    registry: Registry,
    library: str,
    mutants: Sequence[Mutant],
    where: Map,
    reviewed: Reviewed,
    *,
    number: int | None,
    seed: int,
    most: int,
    done: Collection[tuple[str, str, str, str, str, int]] = (),
) -> Plan:
    """Choose the mutants and the schedules to run with each.

    Args:
        where: which schedules run which lines.
        number: the number of reached mutants; all for ``None``.
        seed: the seed of the choice.
        most: the most schedules to run with one mutant.
        done: keys of mutants whose results are known from an earlier run.

    Raises:
        ConformanceError: there is no mutant.
    """
    if not mutants:
        raise ConformanceError(f"{library}: there is nothing to change in these files")
    versions = registry.libraries[library].versions()
    chosen = sample(mutants, number, seed, lambda mutant: bool(where.reached(mutant).places))
    decided: list[MutantResult] = []
    tasks: list[Task] = []
    for mutant in chosen:
        if mutant.key in done:
            continue
        reached = where.reached(mutant)
        fate, why = _known(mutant, bool(reached.places), reviewed)
        if fate is None:
            tasks.append(task_for(library, mutant, reached, most=most))
        else:
            decided.append(MutantResult(mutant, library, fate, versions, why=why))
    return Plan(tuple(decided), tuple(tasks))


def _known(mutant: Mutant, reached: bool, reviewed: Reviewed) -> tuple[Fate | None, str]:  # noqa: FBT001
    if not reached:
        return Fate.UNREACHED, reviewed.why_unreached(mutant.module, mutant.function)
    reason = reviewed.equivalence(mutant)
    return (Fate.EQUIVALENT, reason) if reason else (None, "")


def listed(results: Sequence[MutantResult], library: str) -> Iterator[Mutant]:
    """The mutants of a library that survived in earlier results, to be tried again."""
    return (r.mutant for r in results if r.library == library and r.fate is Fate.SURVIVED)
