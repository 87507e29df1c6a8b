"""What a case proved in an earlier run but not in a later one, with the same verdict.

A case proves as much as was run of it: schedules, the witnesses they showed, counts of costs, and
the rerun with its known defects mended.
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.core.verdict import CaseResult
from conformance.report.outcome import count, listed

_NAMED = 3


def less_covered(before: CaseResult, after: CaseResult) -> str:
    """What is no longer proved, in words; empty if nothing, or if the case failed as a whole."""
    if before.schedules and not after.schedules and not after.verdict.good:
        return ""
    return "; ".join(_less(before, after))


def _less(before: CaseResult, after: CaseResult) -> Iterator[str]:
    played = {schedule.name: schedule for schedule in after.schedules}
    gone = [s.name for s in before.schedules if s.name not in played]
    if gone:
        tier = " (left out by the tier)" if set(gone) <= set(after.left_out) else ""
        yield f"{count(len(gone), 'schedule')} not played{tier}: {listed(gone, _NAMED)}"
    shown = {witness.name for witness in after.witnesses if witness.schedules}
    hidden = [w.name for w in before.witnesses if w.schedules and w.name not in shown]
    if hidden:
        yield f"not shown: {listed(hidden, _NAMED)}"
    uncounted = [
        f"{cost.contract} of {schedule.name}"
        for schedule in before.schedules
        if schedule.name in played
        for cost in schedule.costs
        if cost.contract not in {found.contract for found in played[schedule.name].costs}
    ]
    if uncounted:
        yield f"not counted: {listed(uncounted, _NAMED)}"
    if before.right_once_mended and after.expected and not after.verdict.good:
        if after.mended is None:
            yield "not played with its known defects mended"
        elif hiding := sorted(set(after.unmended) - set(before.unmended)):
            yield f"hidden behind what has no mend: {listed(hiding, _NAMED)}"
