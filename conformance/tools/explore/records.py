"""What exploring is asked for, and what it found: one line of a result file for each family."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from conformance.checks.expectations.entries import NUMERIC
from conformance.core.schedule import Schedule
from conformance.core.verdict import Finding, Verdict
from conformance.scenarios.features import Feature


class ExploreUnit(msgspec.Struct, frozen=True, omit_defaults=True):
    """The work of one process on one family.

    Attributes:
        dtype: of the model; its weights are those of seed 0.
        seed: of the choices.
        examples: schedules and programs to make, at most.
        seconds: of wall time, at most; ``None`` for no limit.
        fault: the key of a fault to put in; empty for none.
        without: features that are left out.
        known: verdicts of known defects of the family: what has one is counted, not reported.
    """

    engine: str
    family: str
    dtype: str
    seed: int
    examples: int
    seconds: float | None = None
    fault: str = ""
    without: tuple[Feature, ...] = ()
    known: tuple[Verdict, ...] = ()


class Maker(enum.StrEnum):
    """What made a schedule."""

    SCHEDULES = "schedules"  # drawn whole, then played
    MACHINE = "machine"  # insert, step, remove and extract in any order


class Discovery(msgspec.Struct, frozen=True):
    """A defect, by its smallest schedule.

    Attributes:
        check: that saw it.
        example: how many schedules had been made when it was found, this one among them.
        maker: what made the schedule.
        reproduced: whether playing the schedule again shows it; else only the machine saw it.
        seconds: that shrinking took.
        schedule: the smallest.
        found: as it was made.
    """

    engine: str
    family: str
    dtype: str
    verdict: Verdict
    check: str
    what: str
    example: int
    maker: Maker
    reproduced: bool
    seconds: float
    schedule: Schedule
    found: Schedule


class Explored(msgspec.Struct, frozen=True):
    """What became of a unit.

    Attributes:
        examples: schedules that were made, ``programs`` of them by the machine.
        refused: of which the library said that it cannot do them.
        wall: seconds, those of shrinking left out, as in the other times; ``cpu`` of this process.
        modelled: seconds of ``wall`` in the engine and in the oracle.
        rates: examples that ended in each second of ``cpu``.
        pairs: of features, with how many schedules had both; ``able`` are the features there are.
        witnesses: those that were seen, of ``possible``.
        again: findings like one that was reported before, or of a known defect.
        unsteady: batches in which the engine did other things when it was asked the same.
        unsupported: the words in which the library refused the family; empty if it did not.
        failed: why nothing could be played, though it should.
    """

    unit: ExploreUnit
    examples: int = 0
    programs: int = 0
    refused: int = 0
    wall: float = 0.0
    cpu: float = 0.0
    modelled: float = 0.0
    rates: tuple[int, ...] = ()
    able: tuple[str, ...] = ()
    pairs: dict[str, int] = {}
    witnesses: tuple[str, ...] = ()
    possible: tuple[str, ...] = ()
    again: int = 0
    unsteady: int = 0
    discoveries: tuple[Discovery, ...] = ()
    unsupported: str = ""
    failed: str = ""

    @property
    def bad(self) -> bool:
        """Whether there is something to look at."""
        return bool(self.discoveries or self.failed)

    @property
    def outside(self) -> float:
        """The share of the time outside the engine and the oracle."""
        return 1 - self.modelled / self.wall if self.wall else 0.0


class Signature(msgspec.Struct, frozen=True):
    """What two findings of one defect have in common, as far as one can tell."""

    kind: str
    where: str = ""


def signature(finding: Finding) -> Signature:
    """Verdicts on numbers are one kind; a crash is told by the place that raised."""
    if finding.verdict in NUMERIC:
        return Signature("numbers")
    if finding.verdict is Verdict.CRASH:
        return Signature("crash", finding.got.partition(":")[0])
    return Signature(finding.verdict.value)


def worst(findings: Iterable[Finding]) -> Finding:
    """The most severe of the findings, the first of them."""
    return max(findings, key=lambda finding: finding.verdict.severity)
