"""Tries mutants in the properties of a library's functions: ``audit functions``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from conformance.core.properties import Property
from conformance.core.verdict import Verdict
from conformance.power.mutants.putting_in import PutIn
from conformance.power.mutants.reach import Place
from conformance.power.properties import properties_of
from conformance.report.mutants import Mutant, MutantKill
from conformance.run.registry import Registry

CASE = "conformance audit functions"
"""The name used in place of a case in the results."""
_CHECK = "properties"
# The longest time of a property, because a mutant may hang.
_SECONDS = 3.0

# Called before each property with a place that represents it, and whether the mutant is in.
Announce = Callable[[Place, bool], None]


class PropertyTrials:
    """Tries the properties of a mutant's function; remembers which hold without the mutant."""

    def __init__(self, properties: Mapping[str, Sequence[Property]], announce: Announce) -> None:
        """``properties`` has the properties of each library."""
        self._properties = properties
        self._announce = announce
        self._holding: dict[str, bool] = {}

    def kill(self, library: str, mutant: Mutant, put_in: PutIn) -> MutantKill | None:
        """The first property that fails with the mutant; ``None`` if all hold."""
        for one in about(mutant, self._properties.get(library, ())):
            place = Place(CASE, one.name, _SECONDS, good=True)
            name = f"{library}: {one.name}"
            if name not in self._holding:
                self._announce(place, False)
                self._holding[name] = not one.problem()
            if not self._holding[name]:
                continue
            self._announce(place, True)
            with put_in.active():
                problem = one.problem()
            if problem:
                return MutantKill(CASE, one.name, Verdict.DIVERGED.value, (_CHECK,), problem)
        return None

    def reads(self, library: str, mutant: Mutant, put_in: PutIn) -> bool:
        """Whether a property fails when the mutant's value fails on being read."""
        for one in about(mutant, self._properties.get(library, ())):
            with put_in.unread():
                if self._holding.get(f"{library}: {one.name}") and one.problem():
                    return True
        return False


def about(mutant: Mutant, properties: Iterable[Property]) -> list[Property]:
    """The properties of the mutant's function."""
    return [one for one in properties if one.is_about(mutant.module, mutant.function)]


def all_properties(registry: Registry) -> dict[str, Sequence[Property]]:
    """The properties of each library whose functions this release has."""
    return {
        name: [one for one in found if isinstance(one, Property)]
        for name, found in properties_of(registry).items()
    }
