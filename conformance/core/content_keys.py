"""Keys made of contents: hashes of texts, files and folders."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

GONE = "gone"
"""The key of a file that cannot be read."""

_DIGITS = 32


def digest(parts: Iterable[bytes]) -> str:
    """A hash of these parts, which also depends on their boundaries."""
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()[:_DIGITS]


def text_digest(*parts: str) -> str:
    """A hash of these texts, which also depends on their boundaries."""
    return digest(part.encode() for part in parts)


def file_digest(path: Path) -> str:
    """A hash of a file's content; ``gone`` if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:_DIGITS]
    except OSError:
        return GONE


def folder_digest(*folders: Path, kinds: Collection[str] = ()) -> str:
    """A hash of the names and contents of all files below folders, links followed.

    Args:
        folders: ``__pycache__`` does not count.
        kinds: the suffixes of the files that count; by default all.
    """
    return digest(part for folder in folders for part in _parts(folder, kinds))


def _parts(folder: Path, kinds: Collection[str]) -> Iterator[bytes]:
    # Not `rglob`, which does not follow links.
    tops = os.walk(folder, followlinks=True)
    for path in sorted(Path(top) / name for top, _, names in tops for name in names):
        counts = "__pycache__" not in path.parts and (not kinds or path.suffix in kinds)
        if counts and path.is_file():
            yield path.relative_to(folder).as_posix().encode()
            yield path.read_bytes()
