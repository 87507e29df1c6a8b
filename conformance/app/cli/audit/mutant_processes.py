"""Processes that try mutants: a hang, a crash or too much memory affects one mutant only."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import psutil
from rich.console import Console

from conformance.app.cli.cluster_option import Helpers
from conformance.app.cli.options import cores
from conformance.backend.uncompiled import uncompiled
from conformance.core.errors import ConformanceError
from conformance.core.library_source import versions_of
from conformance.core.memory_limit import fair_limit
from conformance.core.processes import end_tree, memory_of
from conformance.core.verdict import Verdict
from conformance.core.watched_child import end_with_parent
from conformance.power.mutants.mutant_plan import Recording, Task
from conformance.power.mutants.mutant_trials import Trials
from conformance.power.mutants.reach import Place, Reach
from conformance.power.mutants.unmutated import TaintedError
from conformance.report.mutants import Fate, MutantKill, MutantResult
from conformance.run.registry import Registry, build_registry

_CONTEXT = multiprocessing.get_context("spawn")
_LOOK_SECONDS = 0.25
# Before its first message, a process imports the libraries.
_START_SECONDS = 180.0
# A mutant is given up after this many processes that ended while it was not put in.
_ATTEMPTS = 3


@dataclass
class _Try:
    """A mutant to try, and how many processes failed before they could try it."""

    task: Task
    attempts: int = 0


@dataclass
class _Worker:
    """A process, its current mutant, and its deadline."""

    process: BaseProcess
    pipe: Connection[Any, Any]
    at: _Try | None = None
    place: Place | None = None
    active: bool = False
    used: bool = False
    until: float = 0.0
    begun: float = field(default_factory=time.monotonic)

    def give(self, item: _Try) -> None:
        """Start a mutant in it."""
        self.at, self.place, self.active = item, None, False
        self.begun = time.monotonic()
        self.until = self.begun + _START_SECONDS
        with contextlib.suppress(OSError):  # it has ended, which its waiter notices
            self.pipe.send(item.task)


def tried(
    tasks: Sequence[Task], *, jobs: int, seconds: float | None, beside: int = 1
) -> Generator[MutantResult, None, None]:
    """Yield the result of each mutant, as soon as it is there.

    If an earlier mutant of the same process may have caused a crash, a hang or a wrong result, the
    mutant is tried again, as the first one in a new process.

    Args:
        jobs: processes.
        seconds: start no mutant after this time; running mutants keep their own limit.
        beside: at least this many processes share the machine's memory.
    """
    left = deque(_Try(task) for task in tasks)
    end = time.monotonic() + seconds if seconds is not None else None
    workers: list[_Worker] = []
    limit = fair_limit(max(jobs, beside))
    try:
        while True:
            if end is not None and time.monotonic() > end:
                left.clear()
            for worker in [worker for worker in workers if worker.at is None]:
                if left:
                    worker.give(left.popleft())
                else:
                    _end(worker)
                    workers.remove(worker)
            while left and len(workers) < jobs:
                workers.append(_started())
                workers[-1].give(left.popleft())
            if not workers:
                return
            yield from _look(workers, limit)
    finally:
        for worker in workers:
            _end(worker)


def _look(workers: list[_Worker], limit: int) -> Iterator[MutantResult]:
    """Wait for messages, and for processes that ended or must be killed."""
    ready = wait([worker.pipe for worker in workers], timeout=_LOOK_SECONDS)
    for worker in list(workers):
        ended = ""
        if worker.pipe in ready:
            try:
                yield from _message(worker, workers)
                continue
            except (EOFError, OSError):
                worker.process.join(5)
                ended = f"its process ended with exit code {worker.process.exitcode}"
        elif worker.at is not None and time.monotonic() > worker.until:
            ended = f"it took more than {worker.until - worker.begun:.0f} s"
        elif _memory(worker) > limit:
            ended = f"it took more than {limit / 1e9:.1f} GB of memory"
        if ended:
            hang = worker.process.is_alive() and "memory" not in ended
            yield from _lost(worker, workers, Verdict.HANG if hang else Verdict.CRASH, ended)


def _message(worker: _Worker, workers: list[_Worker]) -> Iterator[MutantResult]:
    kind, *content = worker.pipe.recv()
    if kind == "at":
        worker.place, seconds, worker.active = content
        worker.begun = time.monotonic()
        worker.until = worker.begun + seconds
    elif kind == "done":
        result, tainted = content
        worker.at, worker.used = None, True
        if tainted:
            _end(worker)
            workers.remove(worker)
        yield result
    else:  # an earlier mutant left traces, or this mutant did
        worker.active = True
        yield from _lost(worker, workers, Verdict.UNSTABLE, content[0])


def _lost(
    worker: _Worker, workers: list[_Worker], verdict: Verdict, why: str
) -> Iterator[MutantResult]:
    """Kill a process; its mutant is tried again in a new process, or gets this result."""
    item, place = worker.at, worker.place
    _end(worker)
    workers.remove(worker)
    if item is None:
        return
    item.attempts += 1
    own = worker.active and not worker.used
    if not own and item.attempts < _ATTEMPTS:
        workers.append(_started())
        workers[-1].give(item)
    elif own and place is not None:
        kill = MutantKill(place.case, place.schedule, verdict.value, ("process",), why)
        yield result_of(item.task, Fate.KILLED, kill=kill)
    else:
        yield result_of(item.task, Fate.INVALID, why=f"{why}, before the mutant was put in")


def result_of(
    task: Task, fate: Fate, *, kill: MutantKill | None = None, why: str = ""
) -> MutantResult:
    """The result of a mutant whose trial gave none."""
    versions = versions_of(task.library.replace("_", "-"))
    return MutantResult(
        task.mutant, task.library, fate, versions, kill, reaching=task.reaching, why=why
    )


def _started() -> _Worker:
    pipe, other = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=_work, args=(other, os.getpid()), daemon=False)
    process.start()
    other.close()
    return _Worker(process, pipe)


def _end(worker: _Worker) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        end_tree(psutil.Process(worker.process.pid))
    worker.process.join(5)
    worker.pipe.close()


def _memory(worker: _Worker) -> int:
    try:
        return memory_of(psutil.Process(worker.process.pid))
    except psutil.NoSuchProcess:
        return 0


def _work(pipe: Connection[Any, Any], parent: int) -> None:
    """In a worker process: try mutants on request; the libraries' output is discarded."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(parent)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
    trials = Trials(build_registry(), partial(_announce, pipe))
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        try:
            result = trials.play(task)
        except TaintedError as error:
            pipe.send(("tainted", str(error)))
        except Exception as error:  # noqa: BLE001 - of the mutant, or ours: it is in the results
            pipe.send(("tainted", f"raised {error!r}"))
        else:
            pipe.send(("done", result, trials.tainted))


def _announce(pipe: Connection[Any, Any], place: Place, seconds: float, active: bool) -> None:  # noqa: FBT001
    pipe.send(("at", place, seconds, active))


# Tries mutants in processes of this machine, or in parts on a cluster's workers ------------------

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
        for index, found in shared.as_they_come(try_part, parts, on_crash=lambda _: None):
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


# Records the lines that schedules run, in several processes or on a cluster's workers ------------

_CRASHED = "its process crashed"


class _Part(NamedTuple):
    """A scenario of a family; its own process records its lines."""

    of: Recording
    scenario: str


def recorded(
    registry: Registry, recordings: Sequence[Recording], console: Console, shared: Helpers
) -> list[Reach]:
    """The lines that each family's schedules run; unknown ones are recorded, by scenario.

    Raises:
        ConformanceError: no family's cases can be run.
    """
    known = [recording.known(registry) for recording in recordings]
    unknown = [r for r, reach in zip(recordings, known, strict=True) if reach is None]
    todo = [_Part(r, scenario) for r in unknown for scenario in r.scenarios(registry)]
    parts: dict[str, dict[int, Reach | str]] = {recording.family: {} for recording in unknown}
    with (
        console.status("recording lines") as status,
        contextlib.closing(shared.as_they_come(_record, todo, on_crash=lambda _: _CRASHED)) as done,
    ):
        for number, (index, reach) in enumerate(done, start=1):
            parts[todo[index].of.family][index] = reach
            status.update(f"lines of {number} of {len(todo)} scenarios")
    found = [reach for reach in known if reach is not None]
    for recording in unknown:
        own = [reach for _, reach in sorted(parts[recording.family].items())]
        if wrong := [part for part in own if isinstance(part, str)]:
            console.print(f"{recording.family}: left out: {wrong[0]}", soft_wrap=True)
        else:
            found.append(recording.keep([part for part in own if isinstance(part, Reach)]))
    if not found:
        raise ConformanceError("there is no family whose cases could be played")
    return sorted(found, key=lambda reach: reach.family)


@cache
def _registry() -> Registry:
    """Made once in each process."""
    return build_registry()


def _record(part: _Part) -> Reach | str:
    try:
        with uncompiled():  # a cluster's worker has not set the variable that disables compiling
            return part.of.make(_registry(), part.scenario)
    except Exception as error:  # noqa: BLE001 - whatever a library raises costs its family alone
        return str(error) or repr(error)
