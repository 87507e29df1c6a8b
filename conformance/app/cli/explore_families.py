"""The families that ``conformance explore`` searches, and objects that a worker makes once."""

from __future__ import annotations

from functools import cache

from conformance.app.cli.registries import registry_of
from conformance.checks.expectations import Expectations, load_expectations
from conformance.core.errors import ConformanceError
from conformance.run.registry import Registry, select
from conformance.tools.explore.exclusions import clean


@cache
def registry() -> Registry:
    """The registry, made once in each process."""
    return registry_of(faults=True)


@cache
def expectations() -> Expectations:
    """The expectations, read once in each process."""
    return load_expectations()


def chosen_pairs(
    engines: tuple[str, ...], families: tuple[str, ...], *, known: bool = False, hint: str = ""
) -> list[tuple[str, str]]:
    """Each selected engine with each selected family that it can decode.

    Args:
        known: include families with known defects.
        hint: end of the error message if no selected family is without a known defect.

    Raises:
        ConformanceError: there is no such pair, or a glob matches nothing.
    """
    names = (name for _, name in registry().families)
    chosen = set(select(names, families, what="family"))
    pairs = [
        (engine, family.name)
        for engine in registry().select_engines(engines)
        for family in registry().families_of(registry().engines[engine])
        if family.name in chosen
    ]
    found = [pair for pair in pairs if known or clean(expectations(), *pair)]
    if not found:
        selected = ", ".join(sorted({name for _, name in pairs})) or "none of these engines"
        raise ConformanceError(f"no family without a known defect is selected: {selected}{hint}")
    return found
