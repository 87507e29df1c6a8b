"""How much memory a process of a run may take; a process that takes more is ended.

From outside, because a thread of the process itself would wait for ever beside native code that
keeps the interpreter's lock.
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
"""The part of the machine's memory that all processes of a run may take together."""
SHARE_OF_REAL = 0.95
"""The same for a real checkpoint, which was accepted because the memory suffices."""
LEAST = 2 * 1024**3
"""No process is given less: a library, its tokenizers and a tiny model take up to 1 GB."""
EVERY_SECONDS = 0.25
GRACE_SECONDS = 3.0
"""How long a process may take to write where it was, after the first signal."""

_OPTION = re.compile(r"--(?:conformance-)?memory[ =]([0-9]+(?:\.[0-9]*)?)(?= |$)")
_FORCED = {"--force", "--conformance-force"}

# psutil shows the machine's memory, not what a container may use of it.
_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_of_machine() -> int:
    """The bytes that there are, or that a container may use."""
    found = psutil.virtual_memory().total
    for path in map(Path, _CGROUPS):
        text = path.read_text(encoding="ascii").strip() if path.is_file() else ""
        if text.isdecimal():  # "max": no limit
            found = min(found, int(text))
    return found


def fair_limit(processes: int, share: float = SHARE) -> int:
    """The bytes that each of so many processes may take."""
    return max(LEAST, int(memory_of_machine() * share / max(processes, 1)))


def limit_of_command(words: Sequence[str]) -> int:
    """The bytes that a command's own process may take, which may play cases itself; 0 for no limit.

    It watches itself, too, where it plays them, by the limit that was asked for. This is for what
    keeps the interpreter's lock meanwhile, and for commands that have no such option.
    """
    given = _OPTION.search(" ".join(words))
    if given:
        return max(LEAST, int(float(given[1]) * 1e9)) if float(given[1]) else 0
    return 0 if _FORCED.intersection(words) else fair_limit(1, SHARE_OF_REAL)


@dataclass
class _Watched:
    """A process; once it was over the limit, what it took and when it is killed."""

    process: psutil.Process
    taken: int | None = None
    deadline: float = 0.0


class MemoryWatch:
    """Ends each watched process, with all that it started, once it takes more than ``limit``.

    SIGABRT lets it write where it was (``worker_crashes.py``); SIGKILL follows.

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
        """Watch one process more, in place of an earlier one of that name."""
        if not self.limit:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            self._watched[name] = _Watched(psutil.Process(pid))
        if not self._thread.is_alive() and not self._closed.is_set():
            self._thread.start()

    def taken(self, name: str) -> int | None:
        """The bytes of a process that was ended for them; ``None`` if it was not."""
        watched = self._watched.get(name)
        return watched.taken if watched else None

    def close(self) -> None:
        """Watch no more."""
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
