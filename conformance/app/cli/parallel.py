"""The same work for many items in several processes, of which any may die."""

from __future__ import annotations

import itertools
import multiprocessing
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.process import BaseProcess
from typing import TypeVar

import click

from conformance.app.cli.choices import cores
from conformance.app.pytest_plugin.footprint import fair_limit, footprint

T = TypeVar("T")
R = TypeVar("R")

# How long a process may take too much memory before it is seen.
_LOOK_SECONDS = 0.25


def in_processes(
    work: Callable[[T], R], items: Sequence[T], *, jobs: int | None, died: Callable[[T], R]
) -> Iterator[R]:
    """What ``as_they_come`` gives, in the order of the items."""
    ready: dict[int, R] = {}
    following = 0
    for index, result in as_they_come(work, items, jobs=jobs, died=died):
        ready[index] = result
        while following in ready:
            yield ready.pop(following)
            following += 1


def as_they_come(
    work: Callable[[T], R], items: Sequence[T], *, jobs: int | None, died: Callable[[T], R]
) -> Iterator[tuple[int, R]]:
    """The index of each item and ``work`` of it, as soon as it is there.

    Left early, as by Ctrl-C, it ends its processes at once. A process that takes more than its
    part of the machine's memory is ended, too.

    Args:
        jobs: processes; ``None`` for one a core. With 1, all is done in this process.
        died: what to say of an item that killed its process, even by itself.
    """
    workers = min(jobs or cores(), len(items))
    if jobs == 1 or workers == 0:
        yield from ((index, work(item)) for index, item in enumerate(items))
        return
    left = dict(enumerate(items))
    while left:
        suspects = yield from _side_by_side(work, left, workers)
        for index in suspects:
            # Which of several at work killed its process only a run by itself tells.
            alone = {index: left.pop(index)}
            if len(suspects) == 1 or (yield from _side_by_side(work, alone, 1)):
                yield index, died(items[index])


def _side_by_side(
    work: Callable[[T], R], left: dict[int, T], workers: int
) -> Generator[tuple[int, R], None, list[int]]:
    """Do what is ``left`` and take it out; returns what was at work when a process died."""
    strangers = multiprocessing.active_children()
    limit = fair_limit(workers)

    def look() -> None:
        for process in multiprocessing.active_children():
            if process not in strangers and _takes(process) > limit:
                _end(process, limit)

    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_leave_interrupts)
    try:
        return (yield from _fed(pool, work, left, workers, look))
    except BaseException:
        for process in multiprocessing.active_children():
            if process not in strangers:
                process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _fed(
    pool: ProcessPoolExecutor,
    work: Callable[[T], R],
    left: dict[int, T],
    workers: int,
    look: Callable[[], None],
) -> Generator[tuple[int, R], None, list[int]]:
    """The pool never has more than one item for each process: all it has is at work."""
    waiting = iter(list(left.items()))
    busy: dict[Future[R], int] = {}
    while True:
        for index, item in itertools.islice(waiting, workers - len(busy)):
            try:
                busy[pool.submit(work, item)] = index
            except BrokenProcessPool:
                return list(busy.values())
        if not busy:
            return []
        done, _ = wait(busy, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED)
        look()
        for future in done:
            if isinstance(future.exception(), BrokenProcessPool):
                return list(busy.values())
            index = busy.pop(future)
            del left[index]
            yield index, future.result()


def _takes(process: BaseProcess) -> int:
    return (footprint(process.pid) or 0) if process.pid is not None else 0


def _end(process: BaseProcess, limit: int) -> None:
    """End a process that would take the machine with it; its pool breaks, as by any death."""
    words = f"a process took more than its part of the memory, {limit / 1e9:.1f} GB, and was ended"
    click.echo(f"conformance: {words}", err=True)
    process.kill()


def _leave_interrupts() -> None:
    """Ctrl-C is for the process that started this one, and which ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
