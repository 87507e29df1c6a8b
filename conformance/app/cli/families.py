"""The families that options select."""

from __future__ import annotations

from conformance.core.family import Family
from conformance.core.library import Library
from conformance.run.registry import Registry, select


def chosen_families(
    registry: Registry, engines: tuple[str, ...], patterns: tuple[str, ...]
) -> list[tuple[Library, Family]]:
    """The selected families of these engines' libraries, with their library.

    Raises:
        ConformanceError: a glob matches nothing.
    """
    libraries = {registry.engines[name].library for name in engines}
    names = sorted({name for library, name in registry.families if library in libraries})
    chosen = set(select(names, patterns, what="family"))
    return [
        (registry.libraries[library], family)
        for (library, name), family in registry.families.items()
        if library in libraries and name in chosen
    ]
