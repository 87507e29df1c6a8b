"""What results are held against: the families, scenarios and modules that there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from conformance.coverage import Account, account
from conformance.errors import ModelError
from conformance.registry import Registry
from conformance.verdict import CaseResult

UNKNOWN = "unknown"
"""Stands for what an installed library does not tell of a family."""


@dataclass(frozen=True)
class About:
    """What a family is, by its file and its outline."""

    library: str = UNKNOWN
    module: str = UNKNOWN
    modalities: tuple[str, ...] = (UNKNOWN,)
    caches: tuple[str, ...] = (UNKNOWN,)


@dataclass(frozen=True)
class Inventory:
    """What there is to run with the installed libraries.

    Attributes:
        scenarios: all names, in the order of the ladder.
        families: by engine and family.
        applicable: for each engine its families, each with the scenarios that apply to it.
        accounts: of each library that the results are about.
    """

    scenarios: tuple[str, ...] = ()
    families: Mapping[tuple[str, str], About] = field(default_factory=dict)
    applicable: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    accounts: tuple[Account, ...] = ()

    def about(self, engine: str, family: str) -> About:
        """What is known of a family; of a checkpoint or an uninstalled one, nothing."""
        return self.families.get((engine, family), About())


def take_inventory(registry: Registry, results: Iterable[CaseResult]) -> Inventory:
    """What there is for the engines and families of these results.

    A family's caches are told by its outline, for which the library builds it without weights:
    a tenth of a second each.
    """
    wanted = dict.fromkeys((result.engine, result.family) for result in results)
    engines = [
        registry.engines[name]
        for name in dict.fromkeys(e for e, _ in wanted)
        if name in registry.engines
    ]
    outlined: dict[tuple[str, str], About] = {}
    families = {}
    for engine, family in wanted:
        if engine not in registry.engines:
            continue
        key = (registry.engines[engine].library, family)
        if key not in registry.families:
            continue
        if key not in outlined:
            outlined[key] = _about(registry, key)
        families[engine, family] = outlined[key]
    return Inventory(
        scenarios=tuple(registry.scenarios),
        families=families,
        applicable={
            engine.name: {
                family.name: tuple(s.name for s in registry.scenarios_for(engine, family))
                for family in registry.families_of(engine)
            }
            for engine in engines
        },
        accounts=tuple(
            account(registry, name) for name in dict.fromkeys(e.library for e in engines)
        ),
    )


def _about(registry: Registry, key: tuple[str, str]) -> About:
    family = registry.families[key]
    library = registry.libraries[family.facts.library]
    try:
        kinds = library.outline(family).kinds.get("caches", frozenset())
    except ModelError:  # the library has no such model here, or fails to build it
        kinds = frozenset()
    return About(
        library=family.facts.library,
        module=family.module,
        modalities=family.facts.modalities,
        caches=tuple(sorted(kinds)) or (UNKNOWN,),
    )
