"""Which modules of a library have a family, which are excluded and why, and which have neither."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from conformance.registry import Registry


@dataclass(frozen=True)
class Account:
    """How a library's model modules are accounted for.

    Attributes:
        library: the library's name.
        covered: for each module its families, by name.
        excluded: modules that are no autoregressive language model, with the reason.
        uncovered: modules of the installed release that nobody accounts for.
    """

    library: str
    covered: Mapping[str, tuple[str, ...]]
    excluded: Mapping[str, str]
    uncovered: tuple[str, ...]

    @property
    def problem(self) -> str:
        """One sentence about what is uncovered; empty if nothing is."""
        if not self.uncovered:
            return ""
        return (
            f"{self.library}: {len(self.uncovered)} model module(s) with neither a family nor a "
            f"reasoned exclusion: {', '.join(self.uncovered)}; add a family file for each "
            f"(`conformance list families` shows what there is)"
        )


def account(registry: Registry, library: str) -> Account:
    """The account of the library of that name, as installed.

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
