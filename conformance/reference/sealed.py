"""The store on disk of all that is kept between runs.

A file is written whole or not at all, and what is no file is never read. In a sealed folder files
have a checksum that only this installation can make: a file that was edited, or copied from another
installation, counts as missing and is removed. A folder that somebody else owns, or that others may
write to, is not used. What was used the longest time ago goes first.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from conformance.core import output_files

_KEY_FILE = "seal.key"
_KEY_BYTES = 32


class SealedFolder:
    """Files below a folder, which is made when the first file is written.

    Args:
        folder: the folder; the key of the checksums is next to it, readable only by its owner.

    Attributes:
        distrusted: a sentence if the folder cannot be trusted and is not used; else empty.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._home = Path(os.path.realpath(folder)).parent
        self.distrusted = _distrusted(self._home) or _distrusted(folder)

    def read(self, path: Path) -> bytes | None:
        """The content of a file; ``None`` if it is missing or was changed.

        A changed file is removed.
        """
        if self.distrusted:
            return None
        try:
            check_file(path)
            whole = path.read_bytes()
        except OSError:
            remove(path)
            return None
        tag, data = whole[:_KEY_BYTES], whole[_KEY_BYTES:]
        if hmac.compare_digest(tag, self._tag(path, data)):
            return data
        remove(path)
        return None

    def write(self, path: Path, data: bytes) -> None:
        """Write a file whole or not at all; write nothing if the folder is not trusted.

        Raises:
            OSError: it cannot be written.
        """
        if not self.distrusted:
            write_cached(path, self._tag(path, data) + data)

    def drop_old(
        self,
        most: float,
        *,
        pattern: str = "*",
        size: Callable[[os.stat_result], float] = lambda _: 1,
        keep: Path | None = None,
    ) -> None:
        """Remove what was used the longest time ago.

        Args:
            most: the sum of sizes that may stay; by default a count.
            pattern: of the names that count.
            size: of one file or folder.
            keep: it counts, but stays.
        """
        found = []
        for path in self.folder.glob(pattern):
            with contextlib.suppress(OSError):  # another process has just removed it
                status = path.stat()
                found.append((status.st_mtime_ns, size(status), path))
        total = sum(size for _, size, _ in found)
        for _, its, path in sorted(found):
            if total <= most:
                break
            if path != keep:
                remove(path)
                total -= its

    def _tag(self, path: Path, data: bytes) -> bytes:
        name = str(path.relative_to(self.folder)).encode()
        return hmac.digest(self._key, name + b"\0" + data, hashlib.sha256)

    @functools.cached_property
    def _key(self) -> bytes:
        """The key, made if there is none; a key of this process if it cannot be stored."""
        file = self._home / _KEY_FILE
        found = _read_key(file)
        if found is None:
            with contextlib.suppress(OSError):
                self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
                _make_key(file)
            found = _read_key(file)
        return found or secrets.token_bytes(_KEY_BYTES)


def write_cached(path: Path, data: bytes) -> None:
    """Write a file of a cache, whose folder is made if it does not exist.

    Files that killed processes left in the folder are removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    output_files.sweep(path.parent)
    # A lost file is made again.
    output_files.replace_whole(path, data, lasting=False)


def unwritable(folder: Path, error: OSError) -> str:
    """The sentence for a cache that can't be written: a run works without it."""
    return f"{folder}: nothing can be cached there ({error.strerror}); each run makes it anew"


def why_unwritable(cache: Path) -> str | None:
    """A sentence if ``cache`` can't be used, which is made if it does not exist."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache):
            return None
    except OSError as error:
        return unwritable(cache, error)


def check_file(path: Path) -> None:
    """Check that a file can be read without blocking for ever, as a pipe would.

    Raises:
        OSError: it is not a file, or does not exist.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError("it is no file")


def remove(path: Path) -> None:
    """Remove a file of a cache, or whatever is in its place, if permitted."""
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _make_key(file: Path) -> None:
    """If several processes make a key, the first counts; none is seen unfinished."""
    made = file.with_name(f".{_KEY_FILE}.{os.getpid()}-{secrets.token_hex(4)}")
    number = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "wb") as unfinished:
        unfinished.write(secrets.token_bytes(_KEY_BYTES))
    with contextlib.suppress(FileExistsError):
        file.hardlink_to(made)
    made.unlink()


def _read_key(file: Path) -> bytes | None:
    with contextlib.suppress(OSError):
        check_file(file)
        data = file.read_bytes()
        if len(data) == _KEY_BYTES:
            return data
        file.unlink()
    return None


def _distrusted(folder: Path) -> str:
    try:
        found = folder.stat()
    except OSError:
        return ""
    if found.st_uid != os.geteuid():
        return f"{folder}: not used, as it is of another user; results are not kept"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return (
            f"{folder}: not used, as others may write to it; results are not kept "
            f"(chmod go-w '{folder}', or remove it)"
        )
    return ""
