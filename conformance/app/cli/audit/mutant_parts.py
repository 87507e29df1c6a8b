"""Tries mutants in processes of this machine, or in parts on a cluster's workers."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

from conformance.app.cli.audit.mutant_processes import result_of, tried
from conformance.app.cli.cluster_option import Helpers
from conformance.app.cli.options import cores
from conformance.power.mutants.mutant_plan import Task
from conformance.report.mutants import Fate, MutantResult

# Compiled functions would run code that was traced before; results are the same without.
NO_COMPILE = "MLX_DISABLE_COMPILE"
# Mutants of a part; each may take a minute, and those of a lost worker are tried again.
_OF_PART = 8


class Part(NamedTuple):
    """Some mutants, and the time after which none is started (epoch seconds; ``None``: never)."""

    tasks: tuple[Task, ...]
    until: float | None


def tried_by(
    shared: Helpers, tasks: Sequence[Task], *, seconds: float | None
) -> Generator[MutantResult, None, None]:
    """Yield the result of each mutant, as soon as it is there.

    Args:
        seconds: start no mutant after this time; running mutants keep their own limit.
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
    """Keep neighbouring mutants in one part: the same families' schedules run their lines."""
    for start in range(0, len(tasks), count):
        yield Part(tuple(tasks[start : start + count]), until)


def try_part(part: Part) -> tuple[MutantResult, ...]:
    """Try them in turn, in a process that stays for many mutants."""
    os.environ[NO_COMPILE] = "1"
    seconds = None if part.until is None else part.until - time.time()
    return tuple(tried(part.tasks, jobs=1, seconds=seconds, beside=cores()))


def _nothing(_: Part) -> None:
    return None
