"""A known upstream defect for readers: what a user suffers, where, why, and how far it reaches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from conformance.core.severity import Severity

TOP = 10
"""How many defects come first, before all others by severity."""

MISUSE = frozenset({"invalid", "served_malformed"})
"""The scenarios of wrong calls and malformed requests."""

_LONGEST = 160  # characters of a cause, unless its first sentence is longer


@dataclass(frozen=True)
class KnownDefect:
    """One defect upstream.

    Attributes:
        id: that of the entry of ``expectations/`` that explains it.
        entries: the ids of all entries about it, this one first.
        severity: the kind of harm.
        suffers: what a user suffers, in one sentence.
        package: the package that has it, in the releases of ``versions``.
        families: the families that have it, by name.
        scenarios: the scenarios that show it.
        cases: how many pairs of a family and a scenario show it.
        served: whether the library's own server meets it.
        device: the only kind of device that shows it; empty if all do.
        where: files and lines upstream.
        why: the whole reason, on one line.
        script: the script written by hand, as a path in the repository; empty if a command writes
            it.
        mend: what is right with its repair in memory; empty if there is none.
        needs: what the smallest schedule that shows it has in it, by family.
    """

    id: str
    entries: tuple[str, ...]
    severity: Severity
    suffers: str
    package: str
    versions: str
    families: tuple[str, ...]
    scenarios: tuple[str, ...]
    cases: int
    served: bool
    device: str
    where: tuple[str, ...]
    why: str
    script: str
    mend: str
    needs: Mapping[str, str] = field(default_factory=dict)

    @property
    def cause(self) -> str:
        """The reason's first sentence; one that is long ends at its first semicolon."""
        found = re.match(r".*?[.](?= [A-Z(]|$)", self.why)
        sentence = found[0] if found else self.why
        return sentence if len(sentence) <= _LONGEST else f"{sentence.split('; ')[0].rstrip('.')}."

    @property
    def points(self) -> float:
        """Its place in the order: how many cases it reaches, times how bad it is.

        It counts half if the library's own server does not meet it, half if only one kind of device
        shows it, and half if only wrong calls do.
        """
        misused = bool(self.scenarios) and MISUSE.issuperset(self.scenarios)
        less: int = 2 ** ((not self.served) + bool(self.device) + misused)
        return self.cases * self.severity.weight / less


def by_severity(defects: Iterable[KnownDefect]) -> dict[Severity, tuple[KnownDefect, ...]]:
    """The defects of each kind that there are, the worst kind first, each in the given order."""
    every = tuple(defects)
    groups = {kind: tuple(one for one in every if one.severity is kind) for kind in Severity}
    return {kind: group for kind, group in groups.items() if group}


def releases(defects: Iterable[KnownDefect]) -> dict[str, str]:
    """For each package the newest release that a defect names."""
    newest: dict[str, Version] = {}
    for defect in defects:
        for bound in SpecifierSet(defect.versions):
            version = Version(bound.version)
            newest[defect.package] = max(newest.get(defect.package, version), version)
    return {package: str(version) for package, version in sorted(newest.items())}
