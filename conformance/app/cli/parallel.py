"""Do the same work for many items in several processes, each of which may crash."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

import psutil

from conformance.app.cli.models_output import plain_output
from conformance.app.cli.options import cores
from conformance.app.cli.printing import say
from conformance.core.memory_limit import fair_limit
from conformance.core.processes import end_tree, memory_of
from conformance.core.watched_child import end_with_parent

T = TypeVar("T")
R = TypeVar("R")

# How long a process may exceed its memory before it is noticed.
_LOOK_SECONDS = 0.25


def in_processes(
    work: Callable[[T], R],
    items: Sequence[T],
    *,
    jobs: int | None,
    on_crash: Callable[[T], R],
    prepare: Callable[[], None] | None = None,
) -> Iterator[R]:
    """The results of ``as_they_come``, in the order of the items."""
    ready: dict[int, R] = {}
    following = 0
    for index, result in as_they_come(work, items, jobs=jobs, on_crash=on_crash, prepare=prepare):
        ready[index] = result
        while following in ready:
            yield ready.pop(following)
            following += 1


def as_they_come(
    work: Callable[[T], R],
    items: Sequence[T],
    *,
    jobs: int | None,
    on_crash: Callable[[T], R],
    prepare: Callable[[], None] | None = None,
) -> Generator[tuple[int, R], None, None]:
    """Yield each item's index with the result of ``work``, as soon as it is there.

    If the caller stops early, for example by Ctrl-C, all processes end at once. A process that
    exceeds its part of the machine's memory is killed, too.

    Args:
        jobs: processes; ``None``: one for each core. 1: do all the work in this process.
        on_crash: gives the result of an item that crashes its process even when it runs alone.
        prepare: called first in each process, before anything of a library is imported.
    """
    workers = min(jobs or cores(), len(items))
    if jobs == 1 or workers == 0:
        yield from ((index, work(item)) for index, item in enumerate(items))
        return
    left = dict(enumerate(items))
    while left:
        suspects = yield from _side_by_side(work, left, workers, prepare)
        for index in suspects:
            # Rerun each alone: if several were running, it is unknown which crashed its process.
            single = {index: left.pop(index)}
            if len(suspects) == 1 or (yield from _side_by_side(work, single, 1, prepare)):
                yield index, on_crash(items[index])


def _side_by_side(
    work: Callable[[T], R],
    left: dict[int, T],
    workers: int,
    prepare: Callable[[], None] | None,
) -> Generator[tuple[int, R], None, list[int]]:
    """Work off ``left``; return the items that were running when a process crashed."""
    others = multiprocessing.active_children()
    limit = fair_limit(workers)

    def started() -> Iterator[psutil.Process]:
        for child in multiprocessing.active_children():
            if child not in others:
                with contextlib.suppress(psutil.NoSuchProcess):
                    yield psutil.Process(child.pid)

    def look() -> None:
        for process in started():
            if memory_of(process) > limit:
                _end(process, limit)

    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        workers, mp_context=context, initializer=_settle, initargs=(os.getpid(), prepare)
    )
    try:
        return (yield from _fed(pool, work, left, workers, look))
    except BaseException:
        for process in started():
            end_tree(process)
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
    """Never submit more items than processes, so that every submitted item is running."""
    waiting = iter(list(left.items()))
    busy: dict[Future[R], int] = {}
    while True:
        for index, item in itertools.islice(waiting, workers - len(busy)):
            try:
                busy[pool.submit(_plainly, work, item)] = index
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


def _plainly(work: Callable[[T], R], item: T) -> R:
    """In a worker process: print the output of models as plain text."""
    with plain_output():
        return work(item)


def _end(process: psutil.Process, limit: int) -> None:
    """Kill a process that exceeds its memory; its pool breaks, as after any crash."""
    why = f"a process took more than its part of the memory, {limit / 1e9:.1f} GB, and was ended"
    say(f"conformance: {why}", err=True)
    end_tree(process)


def _settle(parent: int, prepare: Callable[[], None] | None) -> None:
    """In a worker process: leave Ctrl-C to the parent, which ends this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(parent)
    if prepare is not None:
        prepare()
