"""Limits how much GPU memory a process of a run may use; a process that uses more ends itself.

This is measured from inside: not every system counts a device's memory by process, containers least
of all, but mlx knows its own use. Its evaluations let other threads run.
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable
from typing import Any

from conformance.backend.memory import bytes_of_arrays, keep_cache_below, own_memory
from conformance.core.memory_limit import EVERY_SECONDS, LEAST, SHARE

_LINE = re.compile(r"device memory: (\d+) of (\d+)\n")


def device_limit(given: float | None, processes: int) -> int:
    """The bytes that each of ``processes`` may use of their shared device; 0 for no limit.

    Args:
        given: the limit in GB, if there is one.
    """
    there = own_memory()
    if not there:
        return 0  # the device uses the machine's memory, which is watched from outside
    if given is not None:
        return int(given * 1e9)
    return max(LEAST, int(there * SHARE / max(processes, 1)))


def watch_device_memory(limit: int, file: Any) -> None:
    """In a worker: end it once its arrays use more than the limit; its file then says how much.

    Args:
        limit: in bytes; 0 watches nothing.
        file: of its crash, to which faulthandler adds the traceback.
    """
    if not limit:
        return
    keep_cache_below(limit)
    main = threading.main_thread().ident
    assert main is not None

    def end(taken: int) -> None:
        file.write(f"device memory: {taken} of {limit}\n")
        file.flush()
        signal.pthread_kill(main, signal.SIGABRT)

    look = threading.Thread(
        target=_watch, args=(limit, end), name="conformance-device-memory", daemon=True
    )
    look.start()


def _watch(limit: int, end: Callable[[int], None]) -> None:
    never = threading.Event()
    while not never.wait(EVERY_SECONDS):
        if (taken := bytes_of_arrays()) > limit:
            end(taken)
            return


def taken_of_device(crash: str) -> tuple[int, int] | None:
    """How much of its device a worker used, and the limit, if its crash file says so."""
    found = _LINE.match(crash)
    return (int(found[1]), int(found[2])) if found else None


def without_device(crash: str) -> str:
    """The rest of a crash file."""
    return _LINE.sub("", crash, count=1)
