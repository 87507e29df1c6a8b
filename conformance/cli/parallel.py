"""The same work for many items in several processes, of which any may die."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from conformance.cli.choices import cores

T = TypeVar("T")
R = TypeVar("R")


def in_processes(
    work: Callable[[T], R], items: Sequence[T], *, jobs: int | None, died: Callable[[T], R]
) -> Iterator[R]:
    """``work`` of each item, in order, as soon as it is there.

    Args:
        jobs: processes; ``None`` for one a core. With one, all is done in this process.
        died: what to say of an item that killed its process, even by itself.
    """
    workers = min(jobs or cores(), len(items))
    if workers <= 1:
        yield from map(work, items)
        return
    left = list(items)
    while left:
        found = 0
        try:
            for result in _side_by_side(work, left, workers):
                found += 1
                yield result
        except BrokenProcessPool:
            # Some process died; whether it was this item's only a run by itself tells.
            yield _by_itself(work, left[found], died)
            found += 1
        left = left[found:]


def _side_by_side(work: Callable[[T], R], items: Sequence[T], workers: int) -> Iterator[R]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        yield from pool.map(work, items)


def _by_itself(work: Callable[[T], R], item: T, died: Callable[[T], R]) -> R:
    try:
        return next(_side_by_side(work, [item], 1))
    except BrokenProcessPool:
        return died(item)
