"""Selects the cases of a run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TypeVar

from conformance.core.engine import Engine
from conformance.core.errors import ConformanceError
from conformance.core.family import Family
from conformance.core.names import means
from conformance.core.unavailable import sentences
from conformance.core.verdict import CaseId
from conformance.run.family_seconds import FamilySeconds
from conformance.run.registry import Registry, select
from conformance.run.tiers import WHOLE, Tier

T = TypeVar("T")

DTYPES = ("float32", "float16", "bfloat16")
# The libraries' `batch_generate` functions are loops around the same generators, so they run only
# if they are named.
DEFAULT_ENGINES = ("mlx_lm", "mlx_vlm")


@dataclass(frozen=True)
class Shard:
    """One of ``count`` parts of a run, ``number`` from 1; the parts together are the run."""

    number: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Parse a shard such as ``2/4``; the whole run if ``text`` is empty.

        Raises:
            ConformanceError: ``text`` is not ``K/N`` with K from 1 to N, of four digits at most.
        """
        if not text:
            return cls()
        found = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text)
        number, count = (int(found[1]), int(found[2])) if found else (0, 0)
        if not 1 <= number <= count:
            raise ConformanceError(
                f"--shard: {text!r} is not K/N with K from 1 to N, such as 2/4; N is at most 9999"
            )
        return cls(number, count)

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence about what a part of a run lacks."""
        if self.count == 1:
            return ()
        return (f"shard {self.number}/{self.count} alone: the rest of the run is not in it",)

    def of(
        self, found: Iterable[T], group_of: Callable[[T], str], seconds: FamilySeconds
    ) -> tuple[T, ...]:
        """The items of this shard, in their order.

        Each group stays in one shard; the shards take about equal time.
        """
        groups = [(group_of(item), item) for item in found]
        mine = set(seconds.parts((group for group, _ in groups), self.count)[self.number - 1])
        return tuple(item for group, item in groups if group in mine)


@dataclass(frozen=True)
class Selection:
    """Globs for each part of a case id; an empty tuple selects all (dtypes: float32; seeds: 0).

    With ``half``, families of each kind of cache run some scenarios in half precision, too.
    """

    engines: tuple[str, ...] = DEFAULT_ENGINES
    families: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ("float32",)
    seeds: tuple[int, ...] = (0,)
    shard: Shard = Shard()
    tier: Tier = WHOLE
    half: bool = False

    def dtypes_of(self, family: Family, scenario: str) -> tuple[str, ...]:
        """The dtypes in which the family runs the scenario."""
        also = self.half and self.tier.half(family, scenario)
        return tuple(dict.fromkeys((*self.dtypes, *(DTYPES if also else ()))))

    def matches(self, case: CaseId) -> bool:
        """Whether the globs match the parts of a case id."""
        parts = (
            (case.family, self.families),
            (case.scenario, self.scenarios),
            (case.dtype, self.dtypes),
        )
        named = all(not globs or any(fnmatchcase(n, g) for g in globs) for n, globs in parts)
        named &= not self.engines or any(means(glob, case.engine) for glob in self.engines)
        return named and case.seed in self.seeds

    @property
    def whole(self) -> bool:
        """Whether the engines run all their cases, so that unmatched entries can be reported."""
        return self.leads and self.shard.count == 1

    @property
    def leads(self) -> bool:
        """Whether this run reports coverage: a whole run does, or the first shard of one."""
        return not self.families and not self.scenarios and self.shard.number == 1


def cases(registry: Registry, selection: Selection) -> tuple[CaseId, ...]:
    """The selected cases, grouped by family, scenarios in ladder order.

    Raises:
        ConformanceError: a glob matches nothing, a family matches but none of the selected engines
            can run it, or none of the selected scenarios applies to any of the families.
    """
    engines = [registry.engines[n] for n in registry.select_engines(selection.engines)]
    families = {f.name for engine in engines for f in registry.families_of(engine)}
    chosen = select(sorted(families), selection.families, what="family")
    wanted = set(select(registry.scenarios, selection.scenarios, what="scenario"))
    found = tuple(
        CaseId(engine.name, family.name, scenario.name, dtype, seed)
        for name in chosen
        for engine in engines
        for family in registry.families_of(engine)
        if family.name == name
        for dtype in DTYPES
        for seed in selection.seeds
        for scenario in registry.scenarios_for(engine, family)
        if scenario.name in wanted and selection.tier.plays(family, scenario.name)
        if dtype in selection.dtypes_of(family, scenario.name)
    )
    if (
        not found
        and selection.tier is not WHOLE
        and cases(registry, replace(selection, tier=WHOLE))
    ):
        raise ConformanceError(
            f"the {selection.tier.name} tier plays none of the selected scenarios in the selected "
            "families; the full tier does (--tier full)"
        )
    if not found:
        raise ConformanceError(_nothing_applies(registry, engines, set(chosen), wanted))
    return found


def _nothing_applies(
    registry: Registry, engines: list[type[Engine]], families: set[str], scenarios: set[str]
) -> str:
    """One of the reasons, as an example; the listing shows them all."""
    reasons = (
        (engine.name, family.name, scenario, reason)
        for engine in engines
        for family in registry.families_of(engine)
        if family.name in families
        for scenario, reason in registry.left_out(engine, family).items()
        if scenario in scenarios
    )
    engine, family, scenario, reason = next(reasons, ("", "", "", ""))
    if not reason:
        names = ", ".join(each.name for each in engines)
        return " ".join([f"{names} has nothing to play here.", *sentences(registry.unavailable)])
    return (
        f"none of the selected scenarios applies: {engine}/{family}/{scenario}: {reason} "
        f"(`conformance show families --json` says why for each)"
    )


def known_dtype(name: str) -> str:
    """Return the name if it is a working dtype.

    Raises:
        ConformanceError: it is not.
    """
    if name not in DTYPES:
        raise ConformanceError(f"no dtype {name!r}; there are {', '.join(DTYPES)}")
    return name


def seed_number(text: str) -> int:
    """Parse a seed.

    Raises:
        ConformanceError: the text is not a whole number of at least 0.
    """
    if not text.isdecimal():
        raise ConformanceError(f"seed {text!r} is no whole number of at least 0")
    return int(text)
