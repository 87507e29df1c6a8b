"""The cases that the installed libraries allow, and the library modules without a family."""

from __future__ import annotations

from collections.abc import Iterable

from conformance.checks.expectations import Expectations
from conformance.checks.expectations.defects import Ground, known_defects
from conformance.core.engine import Capability, Engine
from conformance.core.errors import ModelError
from conformance.core.inventory import UNKNOWN, About, Account, Inventory
from conformance.core.known_defect import KnownDefect
from conformance.core.verdict import CaseResult
from conformance.run.registry import Registry


def account(registry: Registry, library: str) -> Account:
    """Coverage of the modules of the installed library with this name.

    Raises:
        KeyError: there is no such library.
    """
    coverage = registry.libraries[library].coverage()
    covered: dict[str, tuple[str, ...]] = {}
    for family in registry.families.values():
        if family.facts.library == library:
            covered[family.module] = (*covered.get(family.module, ()), family.name)
    return Account(
        library=library,
        covered=covered,
        excluded=dict(coverage.excluded),
        uncovered=tuple(sorted(set(coverage.modules) - coverage.excluded.keys() - covered.keys())),
    )


def take_inventory(registry: Registry, results: Iterable[CaseResult]) -> Inventory:
    """Inventory of what can be run with the engines and families of these results.

    A family's caches are taken from its outline, which the library builds without weights, in about
    0.1 s.
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
        applicable=applicable(registry, engines),
        accounts=tuple(
            account(registry, name) for name in dict.fromkeys(e.library for e in engines)
        ),
    )


def applicable(
    registry: Registry, engines: Iterable[type[Engine]]
) -> dict[str, dict[str, tuple[str, ...]]]:
    """For each engine its families, each with the scenarios that apply to it."""
    return {
        engine.name: {
            family.name: tuple(s.name for s in registry.scenarios_for(engine, family))
            for family in registry.families_of(engine)
        }
        for engine in engines
    }


def defects_upstream(registry: Registry, known: Expectations) -> tuple[KnownDefect, ...]:
    """The known defects for readers, counted against all that can be run here."""
    engines = registry.engines.values()
    ground = Ground(
        cases=applicable(registry, engines),
        # An engine that has its library's name is the generator that the library's server uses.
        generators=frozenset(
            engine.name
            for engine in engines
            if engine.name == engine.library or Capability.SERVED in engine.capabilities
        ),
        summaries={name: found.summary for name, found in registry.scenarios.items()},
        mends=tuple(registry.mends.values()),
        lock=known.lock,
    )
    return known_defects(known.defects, ground)


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
