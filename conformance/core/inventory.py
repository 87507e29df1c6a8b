"""What there is to run: the families, scenarios and modules that results are held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

UNKNOWN = "unknown"
"""Stands for what an installed library does not tell of a family."""


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
