"""The memory of this machine's processes, and how to end a process with all its children."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import sys
from collections.abc import Collection

import psutil

# ``struct rusage_info_v0`` of macOS, <sys/resource.h>: 16 bytes, then numbers of 8 bytes each.
_RUSAGE_BYTES, _FOOTPRINT_AT = 96, 16 + 7 * 8


def memory_of(process: psutil.Process) -> int:
    """The memory of a process in bytes: resident memory, 0 once it is gone.

    On macOS, the physical footprint, which includes Metal's buffers; resident memory, psutil's only
    number for another process, does not (ml-explore/mlx#3896).
    """
    if not process.is_running():  # its number may be another's by now
        return 0
    if sys.platform == "darwin":
        return _footprint(process.pid, ctypes.CDLL("/usr/lib/libSystem.B.dylib"))
    try:
        return process.memory_info().rss
    except psutil.Error:
        return 0


def _footprint(pid: int, system: ctypes.CDLL) -> int:
    buffer = ctypes.create_string_buffer(_RUSAGE_BYTES)
    if system.proc_pid_rusage(pid, 0, buffer) != 0:
        return 0
    return int.from_bytes(buffer.raw[_FOOTPRINT_AT : _FOOTPRINT_AT + 8], sys.byteorder)


def end_tree(process: psutil.Process, number: int = signal.SIGKILL) -> None:
    """End all child processes of a process, then send it a signal; it may be this process."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in process.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        process.send_signal(number)


def end_trees(pids: Collection[int]) -> None:
    """End these child processes and their children; the system is asked only once."""
    ending = set(pids)
    for process in psutil.Process().children(recursive=True):  # parents come first
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.pid in ending or process.ppid() in ending:
                ending.add(process.pid)
                process.kill()


def describe_exit(code: int) -> str:
    """A process's exit code in words; it is negative for a signal."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
