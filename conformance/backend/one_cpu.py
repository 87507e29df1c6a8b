"""Keeps a process on one processor core while it runs a case.

On a CPU, mlx hands each operation to its own thread, and the families are so small that this takes
longer than the operation. On one core, if its threads do not preempt each other, a process hands
over many operations at once.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx

_TASKS = Path("/proc/self/task")
_STAT = Path("/proc/self/stat")
_CPU = 36  # index of the core after the process's name, which may contain spaces: proc(5)
# After a sleep, the system continues a thread on a free core.
_SLEEP_S = 0.0003


@contextlib.contextmanager
def on_one_cpu() -> Iterator[None]:
    """Keep all threads on the core of this thread; the system chooses the core each time.

    Only on Linux, and if mlx computes on the CPU. A process with another scheduling policy keeps
    it; so does a process that is already in such a block.
    """
    if not sys.platform.startswith("linux") or mx.default_device().type != mx.DeviceType.cpu:
        yield
        return
    cpus, policy, parameters = (
        os.sched_getaffinity(0),
        os.sched_getscheduler(0),
        os.sched_getparam(0),
    )
    if policy != os.SCHED_OTHER:
        yield
        return
    time.sleep(_SLEEP_S)
    _move({_present_cpu()}, os.SCHED_BATCH, parameters)
    try:
        yield
    finally:
        _move(cpus, policy, parameters)


def _present_cpu() -> int:
    return int(_STAT.read_text(encoding="utf-8").rpartition(")")[2].split()[_CPU])


def _move(cpus: set[int], policy: int, parameters: os.sched_param) -> None:
    """Move every thread of the process; most are mlx's, and unknown to Python."""
    for task in _TASKS.iterdir():
        with contextlib.suppress(OSError):  # it has ended, or moving it is not allowed here
            os.sched_setaffinity(int(task.name), cpus)
            os.sched_setscheduler(int(task.name), policy, parameters)
