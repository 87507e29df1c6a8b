"""Threads that a case started and left running."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import thread as pools
from pathlib import Path

from conformance.core.verdict import Finding, Verdict

GRACE_SECONDS = 1.0
"""How long after the end of a case its threads may take to end."""


class ThreadLeaks:
    """Made before a case; afterwards finds the threads that it started and that still run.

    Not counted are daemons, which the interpreter does not wait for, threads of a pool of
    ``concurrent.futures``, which are idle and end with the interpreter, and native threads.
    """

    def __init__(self) -> None:
        self._before = set(threading.enumerate())

    def find(self) -> tuple[threading.Thread, ...]:
        """The leaked threads, after a moment to end."""
        deadline = time.monotonic() + GRACE_SECONDS
        for thread in self._running():
            thread.join(max(0.0, deadline - time.monotonic()))
        return self._running()

    def _running(self) -> tuple[threading.Thread, ...]:
        pooled = set(pools._threads_queues)
        now = (thread for thread in threading.enumerate() if not thread.daemon)
        return tuple(t for t in now if t not in self._before and t not in pooled)


def finding_of(threads: tuple[threading.Thread, ...]) -> Finding:
    """``leak``: which threads still run, and where each is."""
    frames = sys._current_frames()
    places = []
    for thread in threads:
        frame = frames.get(thread.ident or 0)
        parts = Path(frame.f_code.co_filename).parts[-3:] if frame else ()
        place = f" in {'/'.join(parts)}:{frame.f_lineno}" if frame else ""
        places.append(f"{thread.name}{place}")
    return Finding(
        verdict=Verdict.LEAK,
        check="threads",
        what="threads that the case started still run after its end",
        expected="none",
        got=", ".join(places),
        cause="close() does not end them; they take time from all that comes after",
    )
