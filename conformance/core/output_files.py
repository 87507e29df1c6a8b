"""Writes files where the user said: whole or not at all, and nothing else is replaced.

A link keeps its target, and what is no regular file (a device, a pipe, what a shell put in
``/dev/fd``) is written into: only a regular file is ever replaced.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

import psutil

PARTIAL = ".partial"
"""Ends the name of a file that is not whole yet."""

_UNFINISHED = re.compile(rf"\.(?P<name>.+)\.(?P<pid>\d+){re.escape(PARTIAL)}")


def is_stream(path: Path) -> bool:
    """Whether the place is written into instead of being replaced."""
    if str(path.absolute()).startswith(("/dev/", "/proc/")):
        return True
    return path.exists() and not path.is_file()


def write_whole(path: Path, text: str) -> None:
    """Write a text file completely or not at all; into a stream, all at once.

    Raises:
        OSError: it cannot be written; a regular file that was there is unchanged.
    """
    if is_stream(path):
        with path.open("a", encoding="utf-8") as stream:
            stream.write(text)
        return
    place = path.resolve()
    sweep(place.parent, place.name)
    # Named after the process, because another one may be writing the same file.
    partial = place.with_name(f".{place.name}.{os.getpid()}{PARTIAL}")
    try:
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if place.exists():
            partial.chmod(place.stat().st_mode & 0o7777)
        partial.replace(place)
    finally:
        partial.unlink(missing_ok=True)


def sweep(folder: Path, name: str = "") -> None:
    """Remove what processes that were killed left half written in a folder.

    Args:
        name: of the one file that it was to become; empty for all.
    """
    with contextlib.suppress(OSError):
        for path in list(folder.iterdir()):
            found = _UNFINISHED.fullmatch(path.name)
            if found and name in ("", found["name"]) and not psutil.pid_exists(int(found["pid"])):
                path.unlink()
