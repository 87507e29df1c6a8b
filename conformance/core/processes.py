"""What a process of this machine takes, and how it is ended with all that it started."""

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
    """The bytes that a process takes: resident memory, 0 once it is gone.

    On macOS its physical footprint, which counts Metal's buffers; resident memory, the only
    number that psutil has for another process, does not (ml-explore/mlx#3896).
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
    """End all that a process started, then send it a signal; it may be this one."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in process.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        process.send_signal(number)


def end_trees(pids: Collection[int]) -> None:
    """End these children of this process, with all that they started; the system is asked once."""
    ending = set(pids)
    for process in psutil.Process().children(recursive=True):  # parents come first
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.pid in ending or process.ppid() in ending:
                ending.add(process.pid)
                process.kill()


def describe_exit(code: int) -> str:
    """A process's exit code, which is below zero for a signal, in words."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
