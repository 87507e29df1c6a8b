"""A known upstream defect for readers: what a user suffers, where, why, and how far it reaches."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from conformance.core.verdict import Verdict

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


SERVED = "# python -m mlx_vlm.server"
"""How a script begins that asks a server: with the command that starts it."""

MODEL = "a qwen2_vl of two layers with random weights, whose words are t0 to t59"
"""The model that the server had, when the output was stored."""


@dataclass(frozen=True)
class IssueScript:
    """A script of about 20 lines that exits with 1 as long as the defect is there.

    Attributes:
        release: the library and its release: ``mlx-vlm 0.7.10``.
        output: what the script printed in that release.
    """

    script: str
    release: str
    output: str

    @property
    def served(self) -> bool:
        """Whether it asks a running server."""
        return self.script.startswith(SERVED)


class Severity(enum.StrEnum):
    """The kinds of harm, the worst first."""

    TOKENS = "tokens"
    CRASH = "crash"
    DRIFT = "drift"
    REPLY = "reply"
    WASTE = "waste"
    HIDDEN = "hidden"

    @property
    def label(self) -> str:
        """The kind in words, as a heading."""
        return _LABELS[self]

    @property
    def weight(self) -> int:
        """How much one case with it counts, compared with others."""
        return _WEIGHTS[self]


_LABELS: Mapping[Severity, str] = {
    Severity.TOKENS: "wrong tokens",
    Severity.CRASH: "a crash or a hang",
    Severity.DRIFT: "wrong probabilities",
    Severity.REPLY: "wrong replies to requests and calls",
    Severity.WASTE: "wasted work and memory",
    Severity.HIDDEN: "hidden behind another defect",
}

_WEIGHTS: Mapping[Severity, int] = {
    Severity.TOKENS: 8,
    Severity.CRASH: 4,
    Severity.DRIFT: 2,
    Severity.REPLY: 2,
    Severity.WASTE: 1,
    Severity.HIDDEN: 0,
}

_VERDICTS: Mapping[Severity, frozenset[Verdict]] = {
    # An answer that depends on how its prompt was cut is as wrong as one that depends on a batch.
    Severity.TOKENS: frozenset({Verdict.DIVERGED, Verdict.NAN, Verdict.UNSTABLE, Verdict.ORACLE}),
    Severity.CRASH: frozenset({Verdict.CRASH, Verdict.HANG}),
    Severity.DRIFT: frozenset({Verdict.DRIFT, Verdict.POLICY}),
    Severity.REPLY: frozenset({Verdict.PROTOCOL}),
    Severity.WASTE: frozenset({Verdict.LEAK, Verdict.COST}),
}


def severity_of(verdicts: Iterable[Verdict]) -> Severity:
    """The worst of what these verdicts mean for a user; ``HIDDEN`` without any."""
    found = frozenset(verdicts)
    return next((kind for kind, own in _VERDICTS.items() if own & found), Severity.HIDDEN)
