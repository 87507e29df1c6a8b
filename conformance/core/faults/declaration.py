"""A fault: a small named defect that can be put into a running library and taken out."""

from __future__ import annotations

import inspect
import pkgutil
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeAlias, TypeVar

from conformance.core.faults.active import noted
from conformance.core.faults.patching import Patch
from conformance.core.unavailable import Unavailable, imported

T = TypeVar("T")


@dataclass
class Hits:
    """How often the defective code ran where it differs from the correct code."""

    count: int = 0

    def hit(self) -> None:
        """Note that the defect took effect."""
        self.count += 1

    def hit_if(self, condition: object) -> None:
        """Note that the defect took effect if the condition is true."""
        self.count += bool(condition)


# Returns a context manager, inside which the defect is put in; ``Hits`` counts its effects.
Injection: TypeAlias = Callable[[Hits], Patch]


@dataclass(frozen=True)
class Fault:
    """A defect that can be put in; the decorator ``fault`` makes one from a function.

    Attributes:
        name: its id, with the entry of the fault catalogue: ``A1.state-at-padded-end``.
        fault_class: one of the classes of the fault catalogue.
        source: the pull request, issue or release that had the defect, which is then historic; else
            what the defect follows from.
        summary: what is wrong, in one sentence.
        engine: the engine that it applies to.
        needs: traits that a family must have for the defect to show, each a glob, with ``|``
            between alternatives; see ``traits``.
        kills: scenarios of which at least one must catch it, the cheapest first; with a schedule,
            ``held/decoding``, or a glob of some, if the scenario's other schedules cannot catch it.
        inject: a context manager, inside which the defect is put in; afterwards no trace is left.
        crash: the defect is a crash, so that a crash kills it.
        priced: results stay right; a worse figure of the run's cost kills it.
        where: globs, with ``|`` between, of the place that it breaks, as ``conformance explain``
            names places; empty if it has no place, for example a fault of costs.
    """

    name: str
    fault_class: str
    source: str
    summary: str
    engine: str
    needs: tuple[str, ...]
    kills: tuple[str, ...]
    inject: Injection
    crash: bool = False
    priced: bool = False
    where: str = ""

    @property
    def scenarios(self) -> tuple[str, ...]:
        """The scenarios that ``kills`` names."""
        return tuple(dict.fromkeys(place.partition("/")[0] for place in self.kills))

    def may_show(self, scenario: str, schedule: str) -> bool:
        """Whether ``kills`` names this schedule or its whole scenario.

        If all of ``kills`` name a schedule, no other schedule in any scenario can catch it.
        """
        places = [place.partition("/") for place in self.kills]
        named = [name for own, _, name in places if own == scenario]
        if not named:
            return not all(name for _, _, name in places)
        return not any(named) or any(fnmatchcase(schedule, name) for name in named)

    @property
    def key(self) -> str:
        """Its key among the faults of all engines: ``mlx_lm/A1.state-at-padded-end``."""
        return f"{self.engine}/{self.name}"

    def lacks(self, traits: Collection[str]) -> str:
        """The first need that no trait meets; empty if the fault can show."""
        for need in self.needs:
            globs = need.split("|")
            if not any(fnmatchcase(trait, glob) for trait in traits for glob in globs):
                return need
        return ""


def fault(
    name: str,
    *,
    engine: str,
    fault_class: str,
    source: str,
    kills: tuple[str, ...],
    needs: tuple[str, ...] = (),
    where: str = "",
    crash: bool = False,
    priced: bool = False,
) -> Callable[[Injection], Fault]:
    """Make a ``Fault`` from the injection below; its summary is the docstring's first paragraph.

    ::

        @fault("F2.top-p-over-rows", engine="mlx_lm", fault_class="samplers", ...)
        def top_p_over_rows(hits: Hits) -> Patch:
            '''The narrowest nucleus of all rows bounds the tokens of each.'''

            def apply_top_p(right: Right, logprobs: mx.array, top_p: float) -> mx.array:
                ...

            return wrap(sample_utils, "apply_top_p", apply_top_p)

    For arguments that the faults of a library or a module share, use ``functools.partial``.
    """

    def declare(inject: Injection) -> Fault:
        summary = " ".join((inspect.getdoc(inject) or "").partition("\n\n")[0].split())
        return Fault(
            name,
            fault_class,
            source,
            summary,
            engine,
            needs,
            kills,
            noted(inject),
            crash=crash,
            priced=priced,
            where=where,
        )

    return declare


def declared_in(
    package: str, kind: type[T], *, partly: bool = False
) -> tuple[T | Unavailable, ...]:
    """All objects of a kind that the modules of an imported package declare, in order.

    Modules that cannot be imported are left out; a sentence with each reason comes last.

    Args:
        partly: omit these sentences: a release older than the supported ones lacks some of what the
            modules change.
    """
    names = [found.name for found in pkgutil.iter_modules(sys.modules[package].__path__)]
    modules, lacking = imported(package, names)
    found = [v for module in modules for v in vars(module).values() if isinstance(v, kind)]
    return (*found, *([] if partly else lacking))
