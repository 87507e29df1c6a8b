"""What there is to run: the families, scenarios and modules that results are counted against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

UNKNOWN = "unknown"
"""For facts about a family that the installed library does not give."""


@dataclass(frozen=True)
class Account:
    """How a library's model modules are accounted for.

    Attributes:
        library: the library's name.
        covered: for each module its families, by name.
        excluded: modules that are not autoregressive language models, with the reason.
        uncovered: modules of the installed release with neither a family nor a reason.
    """

    library: str
    covered: Mapping[str, tuple[str, ...]]
    excluded: Mapping[str, str]
    uncovered: tuple[str, ...]

    @property
    def problem(self) -> str:
        """One sentence about the uncovered modules; empty if there are none."""
        if not self.uncovered:
            return ""
        return (
            f"{self.library}: {len(self.uncovered)} model module(s) with neither a family nor a "
            f"reasoned exclusion: {', '.join(self.uncovered)}; add a family file for each "
            f"(`conformance show families` shows all families)"
        )


@dataclass(frozen=True)
class About:
    """Facts about a family, from its file and its outline."""

    library: str = UNKNOWN
    module: str = UNKNOWN
    modalities: tuple[str, ...] = (UNKNOWN,)
    caches: tuple[str, ...] = (UNKNOWN,)


@dataclass(frozen=True)
class Inventory:
    """What can be run with the installed libraries.

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
        """The facts about a family; none for a checkpoint or an uninstalled family."""
        return self.families.get((engine, family), About())
