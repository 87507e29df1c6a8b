"""Watches from outside how much memory processes take, and ends those that take too much.

From outside, because a thread of the process itself would wait for ever beside native code that
keeps the interpreter's lock. The signal lets the process say where it was (``deaths.py``).
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable

from conformance.app.pytest_plugin.footprint import footprint

EVERY_SECONDS = 0.25
GRACE_SECONDS = 3.0
"""How long a process may take to say its last words."""


class MemoryWatch:
    """Ends each watched process once it takes more than ``limit`` bytes.

    Args:
        limit: in bytes; 0 watches nothing.
        told: called with the name of a process before it is ended, in the watch's own thread.
    """

    def __init__(self, limit: int, told: Callable[[str], None] = lambda _: None) -> None:
        self.limit = limit
        self._told = told
        self._processes: dict[str, int] = {}
        self._over: dict[str, int] = {}
        self._deadlines: dict[str, float] = {}
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, name: str, pid: int) -> None:
        """Watch one process more."""
        if not self.limit:
            return
        self._over.pop(name, None)
        self._processes[name] = pid
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="conformance-memory")
            self._thread.daemon = True
            self._thread.start()

    def remove(self, name: str) -> None:
        """Its process is over, and its number may soon be another's."""
        self._processes.pop(name, None)

    def taken(self, name: str) -> int | None:
        """What a process took that was ended for it, in bytes; ``None`` if it was not."""
        return self._over.get(name)

    def close(self) -> None:
        """Watch no more."""
        self._end.set()

    def _watch(self) -> None:
        while not self._end.wait(EVERY_SECONDS):
            for name, pid in list(self._processes.items()):
                taken = footprint(pid)
                if taken is not None and taken > self.limit:
                    self._stop(name, pid, taken)

    def _stop(self, name: str, pid: int, taken: int) -> None:
        first = name not in self._over
        if first:
            self._over[name] = taken
            self._deadlines[name] = time.monotonic() + GRACE_SECONDS
            self._told(name)
        elif time.monotonic() < self._deadlines[name]:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGABRT if first else signal.SIGKILL)
