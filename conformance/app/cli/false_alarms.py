"""``conformance explore --false-alarms``: run random schedules where no defect is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from conformance.app.cli.consoles import new_console
from conformance.app.cli.explore_families import registry
from conformance.app.cli.parallel import in_processes
from conformance.core.schedule import Schedule
from conformance.core.verdict import Verdict
from conformance.report.jsonl import write_lines
from conformance.tools.explore.false_alarms import (
    AlarmResult,
    AlarmUnit,
    Allotment,
    Way,
    alarm,
    play_random,
)


def look_for_false_alarms(
    ways: Sequence[Way], cases: int, *, seed: int, target: Path | None, jobs: int | None
) -> bool:
    """Run schedules until ``cases`` rows are judged, and print the results.

    Args:
        ways: engine, family and dtype of each combination.
        target: JSON lines file for the results; ``None``: write none.

    Returns:
        Whether that many rows were judged and none raised an alarm.
    """
    allotment = Allotment(ways, cases, seed=seed)
    console = new_console()
    with console.status("playing") as status:
        while units := allotment.units():
            for more in in_processes(_work, units, jobs=jobs, on_crash=_crashed):
                allotment.take(more)
                alarms = sum(len(item.alarms) for item in allotment.found)
                status.update(f"{allotment.rows} of {cases} rows, {alarms} alarms")
    if target:
        write_lines(target, (msgspec.json.encode(item).decode() for item in allotment.found))
    for line in _lines(allotment, cases):
        console.print(line, soft_wrap=True)
    return _passed(allotment)


def _passed(allotment: Allotment) -> bool:
    return allotment.complete and not any(item.alarms for item in allotment.found)


def _lines(allotment: Allotment, cases: int) -> list[str]:
    """The alarms, the combinations that could not be run, and a summary sentence."""
    found = allotment.found
    lines = [
        f"{a.verdict}: {a.engine}/{a.family} {a.dtype} {a.schedule.name}: {a.what}"
        for item in found
        for a in item.alarms
    ]
    refused = Counter(item.unsupported for item in found if item.unsupported)
    lines += [f"not played ({count}): {why}" for why, count in refused.most_common()]
    if not allotment.complete:
        lines.append(
            f"{allotment.rows} of {cases} rows were judged: no other family is left to play"
        )
    schedules = sum(item.schedules for item in found)
    names = {(item.unit.engine, item.unit.family) for item in found if item.rows}
    worst = max(found, key=lambda item: item.worst_ratio)
    where = f" ({worst.unit.family} in {worst.unit.dtype})" if worst.worst_ratio else ""
    alarms = sum(len(item.alarms) for item in found)
    lines.append(
        f"{'OK' if _passed(allotment) else 'FAILED'}: {alarms} alarms in {allotment.rows} rows of "
        f"{schedules} schedules, {len(names)} families; worst difference "
        f"{worst.worst_ratio:.3g} times the noise{where}"
    )
    return lines


def _work(unit: AlarmUnit) -> AlarmResult:
    return play_random(registry(), unit)


def _crashed(unit: AlarmUnit) -> AlarmResult:
    what = alarm(unit, Verdict.CRASH, "its process crashed", Schedule("random", ()))
    return AlarmResult(unit, alarms=(what,))
