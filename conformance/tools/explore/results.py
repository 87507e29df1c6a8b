"""The work and the results of exploring: one line of a result file for each family."""

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
        seed: of the random choices.
        examples: limit for the number of schedules and programs.
        seconds: limit of wall time; ``None`` for no limit.
        fault: the key of a fault to inject; empty for none.
        without: features that are left out.
        known: verdicts of the family's known defects: such findings are counted, not reported.
        mended: ids of the known defects that are mended while the engine runs.
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
    mended: tuple[str, ...] = ()


class Maker(enum.StrEnum):
    """How a schedule was generated."""

    SCHEDULES = "schedules"  # drawn completely, then run
    WORKLOADS = "workloads"  # dozens of requests, drawn completely, then run
    MACHINE = "machine"  # insert, step, remove and extract in any order


class Discovery(msgspec.Struct, frozen=True):
    """A defect, with its smallest schedule.

    Attributes:
        check: the check that found it.
        example: the number of schedules up to and including the one that found it.
        maker: how the schedule was generated.
        reproduced: whether running the schedule reproduces it; if not, only the program did.
        seconds: the time that shrinking took.
        schedule: the smallest schedule.
        found: the schedule as generated.
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
    """The result of a unit.

    Attributes:
        examples: number of generated schedules, ``programs`` of them as programs.
        refused: how many of them the library does not support.
        wall: seconds, excluding shrinking, as in the other times; ``cpu`` of this process.
        modelled: seconds of ``wall`` in the engine and in the oracle.
        rates: examples that ended in each second of ``cpu``.
        pairs: of features, with how many schedules had both; ``able`` are the possible features.
        witnesses: those that were seen, of ``possible``.
        again: findings that resemble one reported before, or a known defect.
        unsteady: batches in which the engine was not deterministic.
        unsupported: the library's message if it does not support the family; else empty.
        failed: why nothing could be run; empty if something was.
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
        """Whether the result needs attention."""
        return bool(self.discoveries or self.failed)

    @property
    def outside(self) -> float:
        """The share of the time outside the engine and the oracle."""
        return 1 - self.modelled / self.wall if self.wall else 0.0


class Signature(msgspec.Struct, frozen=True):
    """The common properties of findings of the same defect."""

    kind: str
    where: str = ""


def signature(finding: Finding) -> Signature:
    """Numeric verdicts have one signature; a crash is identified by where it was raised."""
    if finding.verdict in NUMERIC:
        return Signature("numbers")
    if finding.verdict is Verdict.CRASH:
        return Signature("crash", finding.got.partition(":")[0])
    return Signature(finding.verdict.value)


def worst(findings: Iterable[Finding]) -> Finding:
    """The first of the most severe findings."""
    return max(findings, key=lambda finding: finding.verdict.severity)


class Causes:
    """The causes seen so far."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, ...]] = set()

    def new(self, found: Explored) -> Explored:
        """Remove discoveries with a cause that was seen before, and count them."""
        kept = []
        for discovery in found.discoveries:
            if (cause := cause_of(discovery)) not in self._seen:
                self._seen.add(cause)
                kept.append(discovery)
        again = found.again + len(found.discoveries) - len(kept)
        return msgspec.structs.replace(found, discoveries=tuple(kept), again=again)


def cause_of(found: Discovery) -> tuple[str, ...]:
    """The common properties of discoveries with one cause, as in ``results.signature``.

    All wrong numbers of a family count as one cause; a crash is identified by its exception, any
    other by its check.
    """
    kind: tuple[str, ...] = (found.verdict.value, found.check)
    if found.verdict in NUMERIC:
        kind = ("numbers",)
    elif found.verdict is Verdict.CRASH:
        kind = ("crash", found.what.partition(":")[0])
    return (found.engine, found.family, found.dtype, *kind)
