"""The stored oracles of tiny families: one file for each family, dtype and seed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from conformance.core.family import Family
from conformance.core.library import Library
from conformance.reference.oracle_file import OracleFile
from conformance.reference.sealed import SealedFolder, unwritable

# A hash of everything that a family's oracle depends on, from library, family, dtype and seed;
# ``None`` if unknown: then nothing is stored.
KeyOf = Callable[[Library, Family, str, int], str | None]

SUFFIX = ".oracle"
# All families of mlx-lm and mlx-vlm in one dtype take less than half of it.
MOST_BYTES = 2_000_000_000


class FamilyStore:
    """Stored oracles in a folder of at most ``most_bytes``: the least recently used go first.

    Args:
        folder: made when the first file is written.
        key_of: makes the key of each file. If it has changed, the file is rewritten; if it has
            changed since the file was opened, nothing is written.

    Attributes:
        reports: sentences about files that could not be used or written.
    """

    def __init__(self, folder: Path, key_of: KeyOf, *, most_bytes: int = MOST_BYTES) -> None:
        self._folder, self._key_of, self._most_bytes = folder, key_of, most_bytes
        self._sealed = SealedFolder(folder)
        self._grown, self._unwritable = True, False
        self._opened: dict[Path, tuple[Library, Family, str, int]] = {}
        self.reports = [self._sealed.distrusted] if self._sealed.distrusted else []

    def open(self, library: Library, family: Family, dtype: str, seed: int) -> OracleFile | None:
        """The file of a family's oracle, or ``None`` if its results can't be stored."""
        key = self._key_of(library, family, dtype, seed)
        if key is None or self._sealed.distrusted:
            return None
        path = self._folder / f"{library.name}-{family.name}-{dtype}-{seed}{SUFFIX}"
        with contextlib.suppress(OSError):  # it does not exist, or is read-only
            os.utime(path)
        self._grown = True
        self._opened[path] = (library, family, dtype, seed)
        return OracleFile(path, key, self.reports.append, self._sealed)

    def save(self, file: OracleFile | None) -> None:
        """Write new results in ``file``; the first time, also remove files above the limit."""
        if file is None or self._unwritable or not file.changed:
            return
        if self._key_of(*self._opened[file.path]) != file.key:
            return  # a file was edited since: it is unknown which text was run
        try:
            if file.save() and self._grown:
                self._grown = False
                self._sealed.drop_old(
                    self._most_bytes,
                    pattern=f"*{SUFFIX}",
                    size=lambda status: status.st_size,
                    keep=file.path,
                )
        except OSError as error:
            self._unwritable = True  # reported once, and not tried again
            self.reports.append(unwritable(self._folder, error))
