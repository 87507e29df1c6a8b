"""Files of packages: their paths, signatures, and content hashes that are remembered."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import operator
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from conformance.core.content_keys import file_digest
from conformance.core.user_cache import user_cache
from conformance.reference.sealed import write_cached

Signature = tuple[int, int, int, int]
"""Size in bytes, time of change of contents and of the inode in ns, inode."""

_NOT_INSTALLED = frozenset({"__pycache__", "site-packages", "dist-packages"})
_by_name = operator.attrgetter("name")


def signature(path: str | Path) -> Signature | None:
    """What changes with a file, however it is changed; ``None`` if there is no file."""
    try:
        found = os.stat(path)  # noqa: PTH116 - called for every installed file
    except OSError:
        return None
    return _signature(found)


@functools.cache
def package_folder(package: str) -> Path | None:
    """The folder of an installed package, without importing it; ``None`` if there is none."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    places = map(Path, (spec and spec.submodule_search_locations) or ())
    # A folder with that name but without content may be part of a namespace.
    return next((p for p in places if any(p.glob("__init__.py")) or any(p.glob("core*.so"))), None)


def walk(root: Path) -> Iterator[tuple[str, Signature]]:
    """The files below a folder, links followed, in the order of their names."""
    waiting, seen = [str(root)], set()
    while waiting:
        folder = waiting.pop()
        try:
            itself = os.stat(folder)  # noqa: PTH116 - called for every folder
            if (itself.st_dev, itself.st_ino) in seen:
                continue
            seen.add((itself.st_dev, itself.st_ino))
            entries = sorted(os.scandir(folder), key=_by_name, reverse=True)
        except OSError:
            continue
        for entry in entries:
            try:
                if entry.is_dir():
                    if entry.name not in _NOT_INSTALLED:
                        waiting.append(entry.path)
                    continue
                sign = _signature(entry.stat())
            except OSError:  # a broken link
                continue
            yield entry.path, sign


def _signature(found: os.stat_result) -> Signature:
    return (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


class Digests:
    """Hashes of installed files, stored with the installation, by path and signature.

    Otherwise each start would read a gigabyte.

    Attributes:
        file: the file that stores them.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._changed = False
        try:
            self._known = msgspec.json.decode(
                file.read_bytes(), type=dict[str, tuple[Signature, str]]
            )
        except (OSError, msgspec.MsgspecError):
            self._known = {}

    @classmethod
    @functools.cache
    def here(cls) -> Digests:
        """The hashes of this interpreter's virtual environment; else of the user."""
        own = sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK)
        folder = Path(sys.prefix) if own else user_cache()
        return cls(folder / "mlx-conformance-digests.json")

    def of(self, path: str, sign: Signature) -> str:
        """The hash of a file's content."""
        known = self._known.get(path)
        if known is not None and known[0] == sign:
            return known[1]
        found = file_digest(Path(path))
        if signature(path) != sign:  # the earlier content is lost
            return f"changed {sign}"
        # A file being written may keep its signature for a tick of the file system's clock.
        if max(sign[1:3]) / 1e9 < time.time() - 1:
            self._known[path] = (sign, found)
            self._changed = True
        return found

    def save(self) -> None:
        """Store new hashes, if possible."""
        if self._changed:
            self._changed = False
            self._known = {path: v for path, v in self._known.items() if signature(path) == v[0]}
            with contextlib.suppress(OSError):
                write_cached(self.file, msgspec.json.encode(self._known))
