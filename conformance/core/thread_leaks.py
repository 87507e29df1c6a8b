"""Threads that a case began and left behind."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import thread as pools
from pathlib import Path

from conformance.core.verdict import Finding, Verdict

GRACE_SECONDS = 1.0
"""How long after the end of a case its threads may take to end."""


class Lingering:
    """Made before a case; knows afterwards which threads it began that still run.

    Not told are daemons, which nobody waits for, threads of a pool of ``concurrent.futures``,
    which are idle and end with the interpreter, and threads that Python does not know.
    """

    def __init__(self) -> None:
        self._before = set(threading.enumerate())

    def left(self) -> tuple[threading.Thread, ...]:
        """The threads, after a moment to end."""
        deadline = time.monotonic() + GRACE_SECONDS
        for thread in self._begun():
            thread.join(max(0.0, deadline - time.monotonic()))
        return self._begun()

    def _begun(self) -> tuple[threading.Thread, ...]:
        pooled = set(pools._threads_queues)
        now = (thread for thread in threading.enumerate() if not thread.daemon)
        return tuple(t for t in now if t not in self._before and t not in pooled)


def finding_of(threads: tuple[threading.Thread, ...]) -> Finding:
    """``leak``: what is left behind, and where it is."""
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
        what="threads that the case began still run after its end",
        expected="none",
        got=", ".join(places),
        cause="close() does not end them; they take time from all that comes after",
    )
