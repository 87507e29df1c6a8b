"""Defects that show in no number that comes out, only in what it took."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.core.verdict import CaseResult, ScheduleResult

# The right run's figure may be surpassed by this share before it counts.
_SHARE = 0.25


def costlier(right: CaseResult, wrong: CaseResult) -> tuple[str, ...]:
    """The figures that a run with a defect has worse than the run without, by their names."""
    before = {schedule.name: schedule for schedule in right.schedules}
    found = {
        name
        for schedule in wrong.schedules
        if schedule.name in before
        for name in _worse(before[schedule.name], schedule)
    }
    return tuple(sorted(found))


def costlier_schedules(right: CaseResult, wrong: CaseResult) -> tuple[str, ...]:
    """The schedules in which a run with a defect has some figure worse, in their order."""
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
    """Padded positions for each real one; the same for one run as for several."""
    return schedule.padded_positions / max(schedule.real_positions, 1)
