"""Who tries mutants: processes of this machine, or a cluster's workers, each some at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

from conformance.app.cli.audit.mutant_processes import result_of, tried
from conformance.app.cli.cluster_option import Helpers
from conformance.app.cli.options import cores
from conformance.power.mutants.choosing import Task
from conformance.report.mutants import Fate, MutantResult

# Compiled functions would run what was traced before; the results are the same without.
NO_COMPILE = "MLX_DISABLE_COMPILE"
# Mutants of a part, which may take a minute each; a lost worker's are tried again.
_OF_PART = 8


class Part(NamedTuple):
    """Some mutants, and when no other is begun, in seconds since the epoch; ``None``: never."""

    tasks: tuple[Task, ...]
    until: float | None


def tried_by(
    shared: Helpers, tasks: Sequence[Task], *, seconds: float | None
) -> Generator[MutantResult, None, None]:
    """The result of each mutant, as soon as it is there.

    Args:
        seconds: after so many no other mutant is begun; those at work have as long as they may.
    """
    if not shared.elsewhere:
        jobs = min(shared.count, max(len(tasks), 1))
        yield from tried(tasks, jobs=jobs, seconds=seconds)
        return
    until = None if seconds is None else time.time() + seconds
    parts = list(_parts(tasks, until, _OF_PART))
    while parts:
        torn: list[Part] = []
        for index, found in shared.as_they_come(try_part, parts, on_crash=_nothing):
            own = parts[index].tasks
            if found is not None:
                yield from found
            elif len(own) > 1:
                torn += _parts(own, until, 1)
            else:
                why = "the workers that tried it ended"
                yield result_of(own[0], Fate.INVALID, why=why)
        parts = torn


def _parts(tasks: Sequence[Task], until: float | None, count: int) -> Iterator[Part]:
    """Neighbours come together: the same families' schedules run their lines."""
    for start in range(0, len(tasks), count):
        yield Part(tuple(tasks[start : start + count]), until)


def try_part(part: Part) -> tuple[MutantResult, ...]:
    """Try them one after another, in a process that stays for many."""
    os.environ[NO_COMPILE] = "1"
    seconds = None if part.until is None else part.until - time.time()
    return tuple(tried(part.tasks, jobs=1, seconds=seconds, beside=cores()))


def _nothing(_: Part) -> None:
    return None
