"""What a fault is: a small named defect that can be put into a running library and taken out."""

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
    """How often the defective code ran where it differs from the right one."""

    count: int = 0

    def hit(self) -> None:
        """Note that the defect took effect."""
        self.count += 1

    def hit_if(self, condition: object) -> None:
        """Note that the defect took effect if the condition is true."""
        self.count += bool(condition)


# Inside the context manager that it gives, the defect is there; it counts where it takes effect.
Injection: TypeAlias = Callable[[Hits], Patch]


@dataclass(frozen=True)
class Fault:
    """A historic defect that can be re-enacted; the decorator ``fault`` makes one of a function.

    Attributes:
        name: its id, with the entry of the catalogue it re-enacts: ``A1.state-at-padded-end``.
        fault_class: one of the classes that the fault catalogue distinguishes.
        source: the pull request or issue that it re-enacts.
        summary: what is wrong, in one sentence.
        engine: the engine that it is put under.
        needs: traits that a family must have for the defect to be able to show, each a glob, with
            ``|`` between alternatives; see ``traits``.
        kills: the scenarios of which at least one must catch it, the cheapest first; with a
            schedule, ``held/decoding``, where the scenario's others do not look for such a thing.
        inject: a context manager; inside it the defect is there, afterwards without a trace gone.
        crash: the historic defect was a crash, so that a crash kills it.
        priced: the answers stay right; a figure of the run that gets worse kills it.
        where: globs, with ``|`` between, of the place that it breaks as ``conformance explain``
            names places; empty where it has none, as in an engine's lists or in costs.
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
        """Whether that schedule is one in which it must be caught, or any of its scenario is.

        Where all of ``kills`` name a schedule, no other looks for such a thing in any scenario.
        """
        places = [place.partition("/") for place in self.kills]
        named = [name for own, _, name in places if own == scenario]
        if not named:
            return not all(name for _, _, name in places)
        return not any(named) or schedule in named

    @property
    def key(self) -> str:
        """Names it among the faults of all engines: ``mlx_lm/A1.state-at-padded-end``."""
        return f"{self.engine}/{self.name}"

    def lacks(self, traits: Collection[str]) -> str:
        """The first need that no trait meets; empty where the fault can show."""
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
    """Make a ``Fault`` of the injection below; its summary is the docstring's first paragraph.

    ::

        @fault("F2.top-p-over-rows", engine="mlx_lm", fault_class="samplers", ...)
        def top_p_over_rows(hits: Hits) -> Patch:
            '''The narrowest nucleus of all rows bounds the tokens of each.'''

            def apply_top_p(right: Right, logprobs: mx.array, top_p: float) -> mx.array:
                ...

            return wrap(sample_utils, "apply_top_p", apply_top_p)

    What the faults of a library or a module have in common, a ``functools.partial`` of this holds.
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
    """What the modules of an imported package declare of a kind, each module's in their order.

    Modules that cannot be imported are left out; a sentence about each reason comes last.

    Args:
        partly: without the sentences: a release that is older than what the project supports does
            not have all that the modules change.
    """
    names = [found.name for found in pkgutil.iter_modules(sys.modules[package].__path__)]
    modules, lacking = imported(package, names)
    found = [v for module in modules for v in vars(module).values() if isinstance(v, kind)]
    return (*found, *([] if partly else lacking))
