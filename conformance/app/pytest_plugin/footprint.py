"""How much memory a process takes, and how much it may take, in bytes."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Any

SHARE = 0.8
"""The part of the machine's memory that all processes of a run may take together."""
SHARE_OF_REAL = 0.95
"""The same for a real checkpoint, which was let in because the memory suffices."""
LEAST = 2 * 1024**3
"""No process is given less: a library, its tokenizers and a tiny model take up to 1 GB."""

_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_PAGE = os.sysconf("SC_PAGE_SIZE")
# ``struct rusage_info_v0`` of macOS, <sys/resource.h>: 16 bytes, then numbers of 8 bytes each.
_RUSAGE_BYTES, _FOOTPRINT_AT = 96, 16 + 7 * 8


def footprint(pid: int) -> int | None:
    """What a process of this user takes; ``None`` if it is gone or nobody says it.

    On Linux its resident pages but those that are files. On macOS its physical footprint, which
    holds Metal's buffers too; resident pages don't.
    """
    if sys.platform == "darwin":
        return _footprint_of_macos(pid, ctypes.CDLL("/usr/lib/libSystem.B.dylib"))
    try:
        parts = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    except OSError:
        return None
    return (int(parts[1]) - int(parts[2])) * _PAGE


def _footprint_of_macos(pid: int, system: Any) -> int | None:
    buffer = ctypes.create_string_buffer(_RUSAGE_BYTES)
    if system.proc_pid_rusage(pid, 0, buffer) != 0:
        return None
    return int.from_bytes(buffer.raw[_FOOTPRINT_AT : _FOOTPRINT_AT + 8], sys.byteorder)


def memory_of_machine() -> int:
    """The memory that there is, or that this process and its like are allowed."""
    found = os.sysconf("SC_PHYS_PAGES") * _PAGE
    for path in _CGROUPS:
        try:
            text = Path(path).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdecimal():  # "max": no limit
            found = min(found, int(text))
    return found


def fair_limit(processes: int, share: float = SHARE) -> int:
    """What each of so many processes may take."""
    return max(LEAST, int(memory_of_machine() * share / max(processes, 1)))
