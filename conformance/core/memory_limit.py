"""Limits the memory of a run's processes; a process that exceeds its limit is killed.

The limit is enforced from outside, because a thread of the process itself could wait for ever for
native code that keeps the interpreter's lock.
"""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from conformance.core.processes import end_tree, memory_of

SHARE = 0.8
"""The part of the machine's memory that all processes of a run together may take."""
SHARE_OF_REAL = 0.95
"""The same for a real checkpoint, which was accepted because the memory suffices."""
LEAST = 2 * 1024**3
"""Minimal limit of a process: a library, its tokenizers and a tiny model take up to 1 GB."""
EVERY_SECONDS = 0.25
GRACE_SECONDS = 3.0
"""How long a process may take to write its position after the first signal."""

_OPTION = re.compile(r"--(?:conformance-)?memory[ =]([0-9]+(?:\.[0-9]*)?)(?= |$)")
_FORCED = {"--force", "--conformance-force"}

# psutil shows the machine's memory, not the limit of a container.
_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_of_machine() -> int:
    """The machine's memory in bytes, or the container's limit."""
    found = psutil.virtual_memory().total
    for path in map(Path, _CGROUPS):
        text = path.read_text(encoding="ascii").strip() if path.is_file() else ""
        if text.isdecimal():  # "max": no limit
            found = min(found, int(text))
    return found


def fair_limit(processes: int, share: float = SHARE) -> int:
    """The limit in bytes of each of this many processes."""
    return max(LEAST, int(memory_of_machine() * share / max(processes, 1)))


def limit_of_command(words: Sequence[str]) -> int:
    """The limit in bytes of a command's own process, which may run cases itself; 0 for no limit.

    The process also watches itself where it runs cases, by the limit that the user set. This limit
    is for code that keeps the interpreter's lock meanwhile, and for commands without such an
    option.
    """
    given = _OPTION.search(" ".join(words))
    if given:
        return max(LEAST, int(float(given[1]) * 1e9)) if float(given[1]) else 0
    return 0 if _FORCED.intersection(words) else fair_limit(1, SHARE_OF_REAL)


@dataclass
class _Watched:
    """A process; once it exceeded the limit, its memory and the time to kill it."""

    process: psutil.Process
    taken: int | None = None
    deadline: float = 0.0


class MemoryWatch:
    """Kills each watched process, with its child processes, once it exceeds ``limit``.

    SIGABRT lets it write its position (``worker_crashes.py``); SIGKILL follows.

    Args:
        limit: in bytes; 0 watches nothing.
        on_excess: called with the name of a process before it is ended, in the watch's own thread.
    """

    def __init__(self, limit: int, on_excess: Callable[[str], None] = lambda _: None) -> None:
        self.limit = limit
        self._on_excess = on_excess
        self._watched: dict[str, _Watched] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="conformance-memory", daemon=True)

    def add(self, name: str, pid: int) -> None:
        """Watch another process, in place of an earlier one with that name."""
        if not self.limit:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            self._watched[name] = _Watched(psutil.Process(pid))
        if not self._thread.is_alive() and not self._closed.is_set():
            self._thread.start()

    def taken(self, name: str) -> int | None:
        """The memory of a process that was killed for it; ``None`` if it was not."""
        watched = self._watched.get(name)
        return watched.taken if watched else None

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(EVERY_SECONDS):
            for name, watched in list(self._watched.items()):
                taken = memory_of(watched.process)
                if taken > self.limit:
                    self._end(name, watched, taken)

    def _end(self, name: str, watched: _Watched, taken: int) -> None:
        if watched.taken is None:
            watched.taken, watched.deadline = taken, time.monotonic() + GRACE_SECONDS
            self._on_excess(name)
            end_tree(watched.process, signal.SIGABRT)
        elif time.monotonic() >= watched.deadline:
            end_tree(watched.process)
