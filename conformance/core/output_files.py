"""Writes files where the user said: whole or not at all, and nothing else is replaced.

A link keeps its target, and what is no regular file (a device, a pipe, what a shell put in
``/dev/fd``) is written into: only a regular file is ever replaced.
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
"""Ends the name of a file that is not whole yet."""

# The file that it is to become, where its process runs, a number of its own, that process.
_UNFINISHED = re.compile(
    rf"\.(?P<name>.+?)(?:\.(?P<here>[0-9a-f]{{8}})-[0-9a-f]{{8}})?\.(?P<pid>\d+){re.escape(PARTIAL)}"
)
_MOST_NAME = 200  # bytes; with what comes after it less than a file system takes
_DAY = 86400.0
_SLACK_SECONDS = 2.0  # clocks of file systems and of processes differ


def is_stream(path: Path) -> bool:
    """Whether the place is written into instead of being replaced."""
    if str(path.absolute()).startswith(("/dev/", "/proc/")):
        return True
    return path.exists() and not path.is_file()


def target_of(path: Path) -> Path:
    """Where a link leads, in the end; the path itself made absolute, if it is none.

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
        lasting: it is there after a loss of power, too, which takes longer.

    Raises:
        OSError: it cannot be written; a file that was there is unchanged.
    """
    # Named after the process, because another one may be writing the same file.
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
    """Remove what processes that were killed left half written in a folder.

    What a process may still be writing stays; whether one of another machine or container does is
    not known for a day.

    Args:
        name: of the one file that it was to become; empty for all.
    """
    with contextlib.suppress(OSError):
        for path in list(folder.iterdir()):
            found = _UNFINISHED.fullmatch(path.name)
            if not found or (name and _label(name) != found["name"]):
                continue
            with contextlib.suppress(OSError):  # another process may sweep, too
                changed = path.stat().st_mtime
                if found["here"] not in (None, _here()):
                    left = time.time() - changed > _DAY
                else:
                    left = not _may_write(int(found["pid"]), changed)
                if left:
                    path.unlink()


def _label(name: str) -> str:
    """The name of a file, or of its beginning, so that there is room for more after it."""
    return name.encode()[:_MOST_NAME].decode(errors="ignore")


def _may_write(pid: int, changed: float) -> bool:
    """Whether the process that wrote a file at that time is still there: pids are used again."""
    try:
        return psutil.Process(pid).create_time() <= changed + _SLACK_SECONDS
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


@functools.cache
def _here() -> str:
    """Where pids mean the same: this machine, or this container of it."""
    with contextlib.suppress(OSError):
        space = os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 - the file is no link to follow
        return hashlib.sha256(f"{platform.node()} {space}".encode()).hexdigest()[:8]
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]
