"""Writes files at the user's paths: whole or not at all, and without replacing anything else.

A link keeps its target, and a special file (a device, a pipe, a shell's ``/dev/fd``) is written
into: only a regular file is ever replaced.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import platform
import re
import time
from pathlib import Path

import psutil

PARTIAL = ".partial"
"""Suffix of a file that is not complete yet."""

# The file that it will become, the host of its process, a unique number, that process.
_UNFINISHED = re.compile(
    rf"\.(?P<name>.+?)(?:\.(?P<here>[0-9a-f]{{8}})-[0-9a-f]{{8}})?\.(?P<pid>\d+){re.escape(PARTIAL)}"
)
_MOST_NAME = 200  # bytes; with suffixes less than the limit of a file system
_DAY = 86400.0
_SLACK_SECONDS = 2.0  # clocks of file systems and of processes differ


def is_stream(path: Path) -> bool:
    """Whether the path is written into instead of being replaced."""
    if str(path.absolute()).startswith(("/dev/", "/proc/")):
        return True
    return path.exists() and not path.is_file()


def target_of(path: Path) -> Path:
    """The final target of a link; any other path is made absolute.

    Raises:
        OSError: it leads to itself.
    """
    place = Path(os.path.realpath(path))
    if place.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return place


def write_whole(path: Path, text: str) -> None:
    """Write a text file completely or not at all; into a stream, all at once.

    Raises:
        OSError: it cannot be written; a regular file that was there is unchanged.
    """
    if is_stream(path):
        with path.open("a", encoding="utf-8") as stream:
            stream.write(text)
        return
    place = target_of(path)
    sweep(place.parent, place.name)
    replace_whole(place, text.encode())


def replace_whole(place: Path, data: bytes, *, lasting: bool = True) -> None:
    """Write a regular file completely or not at all; a link is replaced.

    Args:
        lasting: also survive a loss of power, which takes longer.

    Raises:
        OSError: it cannot be written; a file that was there is unchanged.
    """
    # Named after the process, because another process may be writing the same file.
    own = f"{_here()}-{os.urandom(4).hex()}.{os.getpid()}"
    partial = place.with_name(f".{_label(place.name)}.{own}{PARTIAL}")
    try:
        with partial.open("xb") as file:
            file.write(data)
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        if place.exists():
            partial.chmod(place.stat().st_mode & 0o7777)
        partial.replace(place)
    finally:
        partial.unlink(missing_ok=True)


def sweep(folder: Path, name: str = "") -> None:
    """Remove half-written files that killed processes left in a folder.

    Files that a process may still be writing stay; for processes on another machine or in another
    container this is unknown for a day.

    Args:
        name: the file that they were to become; empty for all.
    """
    with contextlib.suppress(OSError):
        for path in list(folder.iterdir()):
            found = _UNFINISHED.fullmatch(path.name)
            if not found or (name and _label(name) != found["name"]):
                continue
            with contextlib.suppress(OSError):  # another process may be removing them, too
                changed = path.stat().st_mtime
                if found["here"] not in (None, _here()):
                    left = time.time() - changed > _DAY
                else:
                    left = not _may_write(int(found["pid"]), changed)
                if left:
                    path.unlink()


def _label(name: str) -> str:
    """The name of a file, or its beginning, so that there is room for a suffix."""
    return name.encode()[:_MOST_NAME].decode(errors="ignore")


def _may_write(pid: int, changed: float) -> bool:
    """Whether the process that wrote a file at that time still exists: pids are reused."""
    try:
        return psutil.Process(pid).create_time() <= changed + _SLACK_SECONDS
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


@functools.cache
def _here() -> str:
    """Where pids have the same meaning: this machine, or this container on it."""
    with contextlib.suppress(OSError):
        space = os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 - the file is no link to follow
        return hashlib.sha256(f"{platform.node()} {space}".encode()).hexdigest()[:8]
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]
