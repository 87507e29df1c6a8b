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
"""What stands for a case in the results."""
_CHECK = "properties"
# How long one takes, at most; a mutant may hang.
_SECONDS = 3.0

# Called before each property: a place that stands for it, whether the mutant is in.
Announce = Callable[[Place, bool], None]


class PropertyTrials:
    """Tries the properties that are about a mutant's function; which hold without it is kept."""

    def __init__(self, properties: Mapping[str, Sequence[Property]], announce: Announce) -> None:
        """``properties`` are those of each library."""
        self._properties = properties
        self._announce = announce
        self._holding: dict[str, bool] = {}

    def kill(self, library: str, mutant: Mutant, put_in: PutIn) -> MutantKill | None:
        """The property that does not hold with the mutant; ``None`` if all do."""
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
        """Whether a property fails where the value fails that the mutant changes."""
        for one in about(mutant, self._properties.get(library, ())):
            with put_in.unread():
                if self._holding.get(f"{library}: {one.name}") and one.problem():
                    return True
        return False


def about(mutant: Mutant, properties: Iterable[Property]) -> list[Property]:
    """Those about the mutant's function."""
    return [one for one in properties if one.is_about(mutant.module, mutant.function)]


def all_properties(registry: Registry) -> dict[str, Sequence[Property]]:
    """Those of each library, as far as this release has what they are about."""
    return {
        name: [one for one in found if isinstance(one, Property)]
        for name, found in properties_of(registry).items()
    }
