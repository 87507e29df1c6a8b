"""The oracle's results for a checkpoint, cached on disk: streams and noise, one ``.npz`` for each.

A folder holds the results of one checkpoint in one dtype on one device with one set of versions:
numbers depend on each of them. A file is written whole or not at all; a file that was damaged
afterwards is reported, removed, and made again.
"""

from __future__ import annotations

import io
import json
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any, BinaryIO, Generic, NamedTuple, TypeVar

import numpy as np

from conformance.core import output_files
from conformance.core.content_keys import text_digest
from conformance.core.numerics import Envelope
from conformance.core.trace import Stream
from conformance.reference.sealed import check_file, remove, unwritable, write_cached

# No library fits. diskcache is unmaintained and pickles, joblib.Memory pickles, too: a file that
# somebody else wrote could run code. safetensors would do as the format, but has no checksum.

T = TypeVar("T")
Arrays = dict[str, np.ndarray]

DAMAGE = (
    *(OSError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError),
    *(ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, MemoryError),
)
"""The exceptions raised by a damaged file, or by something else in its place."""


class OracleCache(NamedTuple):
    """Stores an oracle's results by request."""

    streams: MutableMapping[Any, Stream]
    envelopes: MutableMapping[Any, Envelope]


def oracle_cache(cache: Path, digest: str, made_by: Mapping[str, str]) -> OracleCache:
    """The cache of one checkpoint's oracle in ``cache``; new results are written there.

    Args:
        digest: the checkpoint's digest.
        made_by: versions, device and dtype: everything else that the numbers depend on.
    """
    folder = folder_of(cache, digest) / text_digest(json.dumps(dict(made_by), sort_keys=True))
    return OracleCache(
        ArrayFiles(folder / "streams", arrays_of_stream, stream_of),
        ArrayFiles(folder / "noise", arrays_of_envelope, envelope_of),
    )


def folder_of(cache: Path, digest: str) -> Path:
    """The folder of everything that is cached for a checkpoint."""
    return cache / "oracle" / digest[:16]


def sweep(folder: Path) -> list[str]:
    """Remove damaged files below ``folder``, with a sentence for each, and unfinished files."""
    removed = []
    for inner in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        output_files.sweep(inner)
    for path in sorted(folder.rglob("*.npz")):
        try:
            read_arrays(path)
        except DAMAGE as error:
            removed.append(remove_damaged(path, error))
    return removed


class ArrayFiles(MutableMapping[Any, T], Generic[T]):
    """A dictionary whose values are files of arrays, each read once.

    Args:
        folder: made when the first value is written.
        pack: converts a value to arrays.
        unpack: converts arrays to the value.
    """

    def __init__(
        self, folder: Path, pack: Callable[[T], Arrays], unpack: Callable[[Arrays], T]
    ) -> None:
        self._folder, self._pack, self._unpack = folder, pack, unpack
        self._loaded: dict[Any, T] = {}

    def __getitem__(self, key: Any) -> T:
        if key not in self._loaded:
            self._loaded[key] = self._load(key)
        return self._loaded[key]

    def __setitem__(self, key: Any, value: T) -> None:
        self._loaded[key] = value
        data = io.BytesIO()
        np.savez(data, allow_pickle=False, key=_key_array(key), **self._pack(value))
        try:
            write_cached(self._path(key), data.getvalue())
        except OSError as error:
            warnings.warn(unwritable(self._folder, error), stacklevel=2)

    def __delitem__(self, key: Any) -> None:
        self._loaded.pop(key, None)
        self._path(key).unlink(missing_ok=True)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loaded)

    def __len__(self) -> int:
        return len(self._loaded)

    def _load(self, key: Any) -> T:
        path = self._path(key)
        try:
            arrays = read_arrays(path)
            if not np.array_equal(arrays.pop("key"), _key_array(key)):
                raise ValueError("it is of another request")
            return self._unpack(arrays)
        except (FileNotFoundError, NotADirectoryError):
            raise KeyError(key) from None
        except DAMAGE as error:
            warnings.warn(remove_damaged(path, error), stacklevel=2)
            raise KeyError(key) from error

    def _path(self, key: Any) -> Path:
        return self._folder / f"{text_digest(repr(key))}.npz"


def read_arrays(path: Path | BinaryIO) -> Arrays:
    """The arrays of a file, by name; ``DAMAGE`` lists what a damaged file raises."""
    if isinstance(path, Path):
        check_file(path)
    # Reading a member to its end compares its checksum.
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def remove_damaged(path: Path, error: Exception) -> str:
    """Remove a damaged file; return the sentence about it."""
    if not isinstance(error, MemoryError):  # which may be this machine's fault
        remove(path)
    reason = " ".join(str(error).split()) or type(error).__name__
    return f"{path}: the cached oracle is damaged ({reason}); it is made again"


def _key_array(key: Any) -> np.ndarray:
    return np.frombuffer(repr(key).encode(), np.uint8)


def arrays_of_stream(stream: Stream) -> Arrays:
    """A stream as arrays; ``stream_of`` makes it again, bit for bit."""
    assert stream.logprobs is not None
    return {"tokens": np.array(stream.tokens, np.int64), "logprobs": stream.logprobs}


def stream_of(arrays: Arrays) -> Stream:
    """The stream of ``arrays_of_stream``."""
    tokens, logprobs = arrays["tokens"], arrays["logprobs"]
    if logprobs.ndim != 2 or len(tokens) != len(logprobs):
        raise ValueError("its tokens and its logprobs are not of one length")
    return Stream(tuple(tokens.tolist()), logprobs)


def arrays_of_envelope(envelope: Envelope) -> Arrays:
    """An envelope as arrays; ``envelope_of`` makes it again, bit for bit."""
    return {
        "top": envelope.top,
        "full": envelope.full,
        "rest": np.array([envelope.floor, envelope.measured, envelope.few], np.float64),
    }


def envelope_of(arrays: Arrays) -> Envelope:
    """The envelope of ``arrays_of_envelope``."""
    floor, measured, few = arrays["rest"].tolist()
    return Envelope(arrays["top"], arrays["full"], floor, bool(measured), bool(few))
