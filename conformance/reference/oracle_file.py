"""The oracle's results for one tiny family: one file, read at once and written whole.

Thousands of small files would be slower than making the results again.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from conformance.core.trace import Stream
from conformance.reference.sealed import SealedFolder
from conformance.reference.store import (
    DAMAGE,
    Arrays,
    OracleCache,
    arrays_of_envelope,
    arrays_of_stream,
    envelope_of,
    read_arrays,
    remove_damaged,
    stream_of,
)

T = TypeVar("T")


class OracleFile:
    """The results that a file has under ``key``, and new results of this run.

    The first stream that is found is still made again, and must have the same bits. So a model has
    decoded before it is batched, as without a file; and results of another model, which the key
    failed to distinguish, are discarded.

    Args:
        path: the file; it need not exist.
        key: of everything that the results depend on; a file with another key counts as empty.
        report: gets a sentence about a file that can't be used.
        sealed: the folder that contains it.

    Attributes:
        changed: whether there are new results.
    """

    def __init__(
        self, path: Path, key: str, report: Callable[[str], None], sealed: SealedFolder
    ) -> None:
        self.path, self.key, self._report, self._sealed = path, key, report, sealed
        self._rejected = False
        self.changed = False
        self._written = self._status()
        self.entries = self._read()
        self.confirmed = not self.entries
        self.cache = OracleCache(
            _Streams(self, "stream", arrays_of_stream, stream_of),
            _Part(self, "noise", arrays_of_envelope, envelope_of),
        )

    def put(self, name: str, arrays: Arrays) -> None:
        """Add a result, for the next ``save``."""
        self.entries[name] = arrays
        self.changed = True

    def reject(self) -> None:
        """Discard what was read: this model gives other results."""
        self.entries.clear()
        self.confirmed = self._rejected = True
        self._report(f"{self.path}: the stored oracle is not this model's; it is made again")

    def save(self) -> bool:
        """Write the file if there are new results; return whether it was written.

        Raises:
            OSError: it can't be written.
        """
        if not self.changed:
            return False
        self.changed = False
        if self._status() != self._written and not self._rejected:
            self.entries = self._read() | self.entries  # another process has added results
        self._sealed.write(self.path, _packed(self.key, self.entries))
        self._written = self._status()
        return True

    def _status(self) -> tuple[int, int] | None:
        """What changes when the file is replaced; ``None`` if there is none."""
        with contextlib.suppress(OSError):
            found = self.path.stat()
            return found.st_ino, found.st_size
        return None

    def _read(self) -> dict[str, Arrays]:
        there = self.path.exists()
        data = self._sealed.read(self.path)
        if data is None:
            if there and not self._sealed.distrusted:
                damage = ValueError("it is not as it was written")
                self._report(remove_damaged(self.path, damage))
            return {}
        try:
            key, entries = _unpacked(read_arrays(io.BytesIO(data)))
        except DAMAGE as error:
            self._report(remove_damaged(self.path, error))
            return {}
        return entries if key == self.key else {}


class _Part(MutableMapping[Any, T], Generic[T]):
    """The results of one kind, by what they are for."""

    def __init__(
        self,
        file: OracleFile,
        kind: str,
        pack: Callable[[T], Arrays],
        unpack: Callable[[Arrays], T],
    ) -> None:
        self._file, self._kind, self._pack, self._unpack = file, kind, pack, unpack

    def __getitem__(self, key: Any) -> T:
        return self._unpack(self._file.entries[self._name(key)])

    def __setitem__(self, key: Any, value: T) -> None:
        self._file.put(self._name(key), self._pack(value))

    def __delitem__(self, key: Any) -> None:
        del self._file.entries[self._name(key)]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._file.entries if name.startswith(self._kind))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _name(self, key: Any) -> str:
        return f"{self._kind} {key!r}"


class _Streams(_Part[Stream]):
    """Streams; none is returned until one was made again and found to be the same."""

    def __getitem__(self, key: Any) -> Stream:
        if not self._file.confirmed:
            raise KeyError(key)
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Stream) -> None:
        stored = self._file.entries.get(self._name(key))
        if stored is not None and not self._file.confirmed:
            if _same(stored, self._pack(value)):
                self._file.confirmed = True
                return
            self._file.reject()
        super().__setitem__(key, value)


def _same(one: Arrays, other: Arrays) -> bool:
    """Whether they have the same names, shapes and bits."""
    return one.keys() == other.keys() and all(
        one[name].shape == other[name].shape and one[name].tobytes() == other[name].tobytes()
        for name in one
    )


def _packed(key: str, entries: dict[str, Arrays]) -> bytes:
    """The bytes of a file: an index in JSON, and all arrays one after the other."""
    index: dict[str, dict[str, tuple[str, tuple[int, ...], int]]] = {}
    parts, place = [], 0
    for name, arrays in entries.items():
        index[name] = {}
        for field, array in arrays.items():
            data = array.tobytes()
            index[name][field] = (array.dtype.str, array.shape, place)
            parts.append(data)
            place += len(data)
    text = json.dumps({"key": key, "entries": index}).encode()
    file = io.BytesIO()
    whole = np.frombuffer(b"".join(parts), np.uint8)
    np.savez(file, allow_pickle=False, index=np.frombuffer(text, np.uint8), data=whole)
    return file.getvalue()


def _unpacked(arrays: Arrays) -> tuple[str, dict[str, Arrays]]:
    """Key and entries of a file; the arrays are views of its data."""
    found = json.loads(arrays["index"].tobytes())
    data = arrays["data"]
    entries = {
        name: {field: _view(data, *place) for field, place in fields.items()}
        for name, fields in found["entries"].items()
    }
    return found["key"], entries


def _view(data: np.ndarray, dtype: str, shape: list[int], place: int) -> np.ndarray:
    kind = np.dtype(dtype)
    size = int(np.prod(shape)) * kind.itemsize
    return data[place : place + size].view(kind).reshape(shape)
