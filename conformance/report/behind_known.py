"""How many cases show a known defect, and behind how many of these a new one would be seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from conformance.core.verdict import CaseResult, Verdict
from conformance.report.outcome import count, listed

_NAMED = 5


@dataclass(frozen=True)
class BehindKnown:
    """Cases with a known defect; what a library refuses does not count.

    Attributes:
        cases: those of a run.
        mended: of these the ones that are right with their known defects mended.
        hiding: entries without a mend, with the number of their cases, the largest first.
    """

    cases: int
    mended: int
    hiding: tuple[tuple[str, int], ...]

    @property
    def hidden(self) -> int:
        """Cases in which a new defect would not be seen, or not in all schedules."""
        return self.cases - self.mended

    @property
    def sentence(self) -> str:
        """The numbers in words; empty without such a case."""
        if not self.cases:
            return ""
        text = f"known defects show in {count(self.cases, 'case')}, {self.mended} right once mended"
        if not self.hidden:
            return f"{text}: a new defect behind them would be seen"
        names = listed([name for name, _ in self.hiding], _NAMED)
        without = f" (no mend: {names})" if names else ""
        return f"{text}; behind the other {self.hidden} a new one would not be seen{without}"


def behind_known(results: Sequence[CaseResult]) -> BehindKnown:
    """The numbers of a run."""
    known = [r for r in results if r.known and r.verdict is not Verdict.UNSUPPORTED]
    known = [r for r in known if r.expected and not r.verdict.good]
    hiding = Counter(name for result in known for name in result.unmended)
    return BehindKnown(
        len(known),
        sum(result.right_once_mended for result in known),
        tuple(sorted(hiding.items(), key=lambda item: (-item[1], item[0]))),
    )
