"""Selected cases that a run leaves out: unchanged, or right in their last run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from conformance.core.verdict import CaseResult, Verdict
from conformance.report.outcome import count, listed, tallies

_NAMED = 3


@dataclass(frozen=True)
class LeftOut:
    """The cases that a run leaves out, and their known results.

    Attributes:
        last: the last known result of each of the cases, by id; ``None`` if there is none.
        failed: the cases that were not as expected in their last run.
    """

    last: Mapping[str, CaseResult | None] = field(default_factory=dict)
    failed: tuple[str, ...] = ()

    @classmethod
    def of(cls, last: Mapping[str, CaseResult | None], failures: Iterable[str]) -> LeftOut:
        """Add the ids of all cases that failed in their last run; they may have no result."""
        remembered = set(failures)
        failed = (
            name
            for name, result in last.items()
            if (name in remembered if result is None else not result.expected)
        )
        return cls(last, tuple(sorted(failed)))

    def judged(self, judge: Callable[[CaseResult], CaseResult]) -> LeftOut:
        """The same, with another rule for expected results."""
        last = {name: judge(found) if found else None for name, found in self.last.items()}
        unknown = {name for name in self.failed if last[name] is None}
        return LeftOut.of(last, unknown)

    @property
    def unknown(self) -> int:
        """The number of cases without a known result."""
        return sum(result is None for result in self.last.values())

    @property
    def notes(self) -> tuple[str, ...]:
        """The cases that were not run, and what is known of them."""
        if not self.last:
            return ()
        found = [f"{t.verdict} {t.cases}" for t in tallies(filter(None, self.last.values()))]
        found += [f"none is known of {self.unknown}"] if self.unknown else []
        return (f"not run: {count(len(self.last), 'case')}; last results: {', '.join(found)}",)

    @property
    def problems(self) -> tuple[str, ...]:
        """The cases that were not run and were not as expected in their last run."""
        if not self.failed:
            return ()
        shown = [self._shown(name) for name in self.failed]
        cases = count(len(self.failed), "case")
        return (f"not run, and not as expected the last time: {cases}: {listed(shown, _NAMED)}",)

    def _shown(self, name: str) -> str:
        result = self.last[name]
        return name if result is None else f"{name} ({result.verdict})"


# How many cases show a known defect, and how many of these are right with it mended ---------------

_HIDING = 5


@dataclass(frozen=True)
class BehindKnown:
    """Cases with a known defect, except cases that a library refuses.

    Attributes:
        cases: all such cases of a run.
        mended: cases that are right with their known defects mended, in all failed schedules.
        hiding: entries without a mend, with the number of their cases, the largest first.
        alone: other cases, run only with their known defects mended.
    """

    cases: int
    mended: int
    hiding: tuple[tuple[str, int], ...]
    alone: int = 0

    @property
    def hidden(self) -> int:
        """Cases that are not known to be right once mended, or not in all schedules."""
        return self.cases - self.mended

    @property
    def sentence(self) -> str:
        """The numbers in words; empty without such a case."""
        were = "was" if self.alone == 1 else "were"
        alone = (
            f"{count(self.alone, 'case')} with known defects that others show {were} run only with "
            "these mended (--tier full runs all as released)"
        )
        return "; ".join(filter(None, (self._shown, alone if self.alone else "")))

    @property
    def _shown(self) -> str:
        if not self.cases:
            return ""
        text = f"known defects show in {count(self.cases, 'case')}, {self.mended} right once mended"
        # Not "a new defect would be seen": a mend may replace the very code that has it.
        if not self.hidden:
            return f"{text}, in every schedule that failed"
        names = listed([name for name, _ in self.hiding], _HIDING)
        without = f" (no mend: {names})" if names else ""
        return f"{text}; the other {self.hidden} may hide a new defect{without}"


def behind_known(results: Sequence[CaseResult]) -> BehindKnown:
    """The numbers of a run."""
    known = [r for r in results if r.known and r.verdict is not Verdict.UNSUPPORTED]
    known = [r for r in known if r.expected and not r.verdict.good]
    hiding = Counter(name for result in known for name in result.unmended)
    right = [result for result in known if result.right_once_mended and not _unplayed(result)]
    return BehindKnown(
        len(known),
        len(right),
        tuple(sorted(hiding.items(), key=lambda item: (-item[1], item[0]))),
        alone=sum(result.mended_alone for result in results),
    )


def _unplayed(result: CaseResult) -> set[str]:
    """The failed schedules of a case that were not rerun with its defects mended.

    If no schedule could be run as released, all are rerun. A refused schedule has nothing behind
    it.
    """
    mended = result.mended.schedules if result.mended is not None else ()
    refused = {f.schedule for f in result.evidence if f.verdict is Verdict.UNSUPPORTED}
    nothing_behind = (Verdict.EXACT, Verdict.TIE, Verdict.UNSUPPORTED)
    failed = {s.name for s in result.schedules if s.verdict not in nothing_behind}
    return failed - refused - set(mended) if mended else set()
