"""The process's one other thread, for what must be shown to work from there too."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


def on_other_thread(work: Callable[[], T]) -> T:
    """Call ``work`` on the other thread, wait, and return its result.

    All calls share one thread that never ends: each new thread would get its own mlx streams, whose
    threads outlive it and slow down everything that comes after.
    """
    future: Future[T] = Future()
    _jobs().put((work, future))
    return future.result()


@functools.cache
def _jobs() -> SimpleQueue[tuple[Callable[[], Any], Future[Any]]]:
    """The queue of the other thread, which is started by the first call."""
    jobs: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()

    def run() -> None:
        while True:
            work, future = jobs.get()
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001  (raised again in the caller)
                future.set_exception(error)

    threading.Thread(target=run, name="conformance-other", daemon=True).start()
    return jobs
