"""Records which files this process opens for reading, by Python's audit events (PEP 578)."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from conformance.core.user_cache import user_cache
from conformance.reference.installed_files import Digests, Signature, signature
from conformance.reference.surroundings import Environment

NO_FILES = ("/proc/", "/sys/", "/dev/null", "/dev/tty", "/dev/pts/", "/dev/urandom", "/dev/fd/")
"""Beginnings of paths without permanent content."""

_OPENING = {"open", "sqlite3.connect"}

_opened: dict[str, Signature | None] | None = None
_written: set[str] = set()


def watch() -> None:
    """Record opened files from now on; an audit hook stays for the life of the process."""
    global _opened  # noqa: PLW0603 - as the hook is the process's
    if _opened is None:
        _opened = {}
        sys.addaudithook(_note)


def number_opened() -> int:
    """How many files were opened so far."""
    return len(_opened or ())


def opened_files(
    environment: Environment, left_out: Collection[str]
) -> Iterator[tuple[str, Signature | None]]:
    """The files opened for reading, as they were then; ``None`` if a file did not exist.

    Excludes installed files, files that this process wrote, and files made for this run.

    Args:
        environment: the installed packages, and when this run began.
        left_out: files that decide which cases are run, but not their results.
    """
    own = str(Digests.here().file)  # read and written to find what else changed
    cache, moment = f"{user_cache()}{os.sep}", f"{tempfile.gettempdir()}{os.sep}"
    for path, seen in list((_opened or {}).items()):
        if path in left_out or path == own or path.startswith((*NO_FILES, cache)):
            continue
        if environment.covers(path) or Path(path).parent.name == "__pycache__":
            continue
        made = seen is None or seen[2] / 1e9 >= environment.began
        if path.startswith(moment) and made and not Path(path).exists():
            continue
        yield path, seen


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _OPENING or _opened is None:
        return
    path = arguments[0]
    try:
        name = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - in each opening of a file
    except (OSError, ValueError, TypeError):  # an open file, or not a file name
        return
    mode, flags = (*arguments[1:], None, None)[:2]
    if name in _opened or name in _written:
        return
    if _makes(mode, flags):
        _written.add(name)
    else:
        _opened[name] = signature(name)


def _makes(mode: Any, flags: Any) -> bool:
    """Whether earlier content of the file cannot be read through this opening."""
    if isinstance(mode, str):
        return bool(set(mode) & set("wx")) or ("a" in mode and "+" not in mode)
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_TRUNC | os.O_EXCL))
