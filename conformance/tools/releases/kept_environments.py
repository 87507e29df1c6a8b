"""Lists the folder of environments, with sizes, and removes entries from it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from conformance.core.errors import ReleaseError
from conformance.tools.releases.environments import MAKING
from conformance.tools.releases.pins import LIBRARIES

_OURS = (*(f"{library}-" for library in LIBRARIES), "package-", "solved-", MAKING)


@dataclass(frozen=True)
class Kept:
    """An environment, a copy of this project, or a stored result of the resolver.

    Attributes:
        size: bytes on disk; files that ``uv`` shares between environments count in each.
    """

    path: Path
    size: int


def kept(cache: Path) -> tuple[Kept, ...]:
    """The entries that this command has put into a folder, by name; other files are ignored.

    Raises:
        ReleaseError: the folder cannot be read.
    """
    try:
        paths = sorted(cache.iterdir()) if cache.is_dir() else []
        return tuple(Kept(p, _size(p)) for p in paths if p.name.startswith(_OURS))
    except OSError as error:
        raise ReleaseError(f"{cache}: cannot be read: {error.strerror}") from error


def remove(entries: tuple[Kept, ...]) -> None:
    """Delete the entries.

    Raises:
        ReleaseError: an entry cannot be deleted.
    """
    for entry in entries:
        try:
            if entry.path.is_dir() and not entry.path.is_symlink():
                shutil.rmtree(entry.path)
            else:
                entry.path.unlink(missing_ok=True)
        except OSError as error:
            raise ReleaseError(f"{entry.path}: cannot be removed: {error.strerror}") from error


def _size(path: Path) -> int:
    """The size of all files below a path, or of a single file; links are not followed."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_blocks * 512 for file in files)
