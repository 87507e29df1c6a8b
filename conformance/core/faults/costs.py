"""Faults that change no result, only the cost of a run."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.core.verdict import CaseResult, ScheduleResult

# A figure may exceed that of the correct run by this share before it counts.
_SHARE = 0.25


def costlier(right: CaseResult, wrong: CaseResult) -> tuple[str, ...]:
    """The names of the figures that are worse in the run with the fault."""
    before = {schedule.name: schedule for schedule in right.schedules}
    found = {
        name
        for schedule in wrong.schedules
        if schedule.name in before
        for name in _worse(before[schedule.name], schedule)
    }
    return tuple(sorted(found))


def costlier_schedules(right: CaseResult, wrong: CaseResult) -> tuple[str, ...]:
    """The schedules with a worse figure in the run with the fault, in their order."""
    before = {schedule.name: schedule for schedule in right.schedules}
    return tuple(
        schedule.name
        for schedule in wrong.schedules
        if schedule.name in before and any(_worse(before[schedule.name], schedule))
    )


def _worse(right: ScheduleResult, wrong: ScheduleResult) -> Iterator[str]:
    if _padding(wrong) > _padding(right) + _SHARE:
        yield "padding"
    if wrong.longest_wait > right.longest_wait * (1 + _SHARE) + 1:
        yield "wait"
    if wrong.host_reads > right.host_reads * (1 + _SHARE) + 1:
        yield "host reads"


def _padding(schedule: ScheduleResult) -> float:
    """Padded positions per real position; the same for one run as for several."""
    return schedule.padded_positions / max(schedule.real_positions, 1)
