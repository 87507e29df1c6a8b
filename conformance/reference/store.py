"""What the oracle of a checkpoint said, kept on disk: streams and noise, one ``.npz`` for each.

A folder holds what one checkpoint gave in one dtype on one device with one set of versions: change
any of them and the numbers are others. A file is there whole or not at all; one that was damaged
afterwards is told, left out, and made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from conformance.core.numerics import Envelope
from conformance.core.trace import Stream

T = TypeVar("T")
Arrays = dict[str, np.ndarray]

_DAMAGE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)


class Kept(NamedTuple):
    """Where an oracle keeps its answers, by what they are the answers to."""

    streams: MutableMapping[Any, Stream]
    envelopes: MutableMapping[Any, Envelope]


def keep(cache: Path, digest: str, made_by: Mapping[str, str]) -> Kept:
    """The answers of one checkpoint in ``cache``; those to come are written there.

    Args:
        digest: of the checkpoint.
        made_by: versions, device and dtype: all else that numbers depend on.
    """
    folder = folder_of(cache, digest) / _hash(json.dumps(dict(made_by), sort_keys=True))
    return Kept(
        Shelf(folder / "streams", _stream_arrays, _stream),
        Shelf(folder / "noise", _envelope_arrays, _envelope),
    )


def folder_of(cache: Path, digest: str) -> Path:
    """Where all that is kept of a checkpoint lies."""
    return cache / "oracle" / digest[:16]


def sweep(folder: Path) -> list[str]:
    """Remove the damaged files below ``folder``; a sentence for each."""
    told = []
    for path in sorted(folder.rglob("*.npz")):
        try:
            _read(path)
        except _DAMAGE as error:
            told.append(_told(path, error))
            with contextlib.suppress(OSError):  # a folder that can't be written either
                path.unlink(missing_ok=True)
    return told


class Shelf(MutableMapping[Any, T], Generic[T]):
    """A dictionary whose values are files, each read once.

    Args:
        folder: made when the first value is written.
        pack: the arrays of a value; ``unpack`` makes the value again.
    """

    def __init__(
        self, folder: Path, pack: Callable[[T], Arrays], unpack: Callable[[Arrays], T]
    ) -> None:
        self._folder, self._pack, self._unpack = folder, pack, unpack
        self._known: dict[Any, T] = {}

    def __getitem__(self, key: Any) -> T:
        if key not in self._known:
            self._known[key] = self._load(key)
        return self._known[key]

    def __setitem__(self, key: Any, value: T) -> None:
        self._known[key] = value
        data = io.BytesIO()
        np.savez(data, allow_pickle=False, key=_key_array(key), **self._pack(value))
        try:
            write_cached(self._path(key), data.getvalue())
        except OSError as error:
            warnings.warn(unkept(self._folder, error), stacklevel=2)

    def __delitem__(self, key: Any) -> None:
        self._known.pop(key, None)
        self._path(key).unlink(missing_ok=True)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def _load(self, key: Any) -> T:
        path = self._path(key)
        if not path.is_file():
            raise KeyError(key)
        try:
            arrays = _read(path)
            if not np.array_equal(arrays.pop("key"), _key_array(key)):
                raise ValueError("it answers another request")
            return self._unpack(arrays)
        except _DAMAGE as error:
            warnings.warn(_told(path, error), stacklevel=2)
            raise KeyError(key) from error

    def _path(self, key: Any) -> Path:
        return self._folder / f"{_hash(repr(key))}.npz"


def write_cached(path: Path, data: bytes) -> None:
    """Write a file of a cache, whose folder is made if it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, data)


def unkept(folder: Path, error: OSError) -> str:
    """What to say where a cache can't be written: a run does without it."""
    return f"{folder}: nothing can be kept there ({error.strerror}); each run makes it anew"


def why_unwritable(cache: Path) -> str | None:
    """A sentence where nothing can be kept in ``cache``, which is made if it is not there."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache):
            return None
    except OSError as error:
        return unkept(cache, error)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that nobody ever sees a part of it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".partial")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _read(path: Path) -> Arrays:
    # Reading a member to its end compares its checksum.
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _told(path: Path, error: Exception) -> str:
    words = " ".join(str(error).split()) or type(error).__name__
    return f"{path}: the kept oracle is damaged ({words}); it is made again"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _key_array(key: Any) -> np.ndarray:
    return np.frombuffer(repr(key).encode(), np.uint8)


def _stream_arrays(stream: Stream) -> Arrays:
    assert stream.logprobs is not None
    return {"tokens": np.array(stream.tokens, np.int64), "logprobs": stream.logprobs}


def _stream(arrays: Arrays) -> Stream:
    tokens, logprobs = arrays["tokens"], arrays["logprobs"]
    if logprobs.ndim != 2 or len(tokens) != len(logprobs):
        raise ValueError("its tokens and its logprobs are not of one length")
    return Stream(tuple(tokens.tolist()), logprobs)


def _envelope_arrays(envelope: Envelope) -> Arrays:
    return {
        "top": envelope.top,
        "full": envelope.full,
        "rest": np.array([envelope.floor, envelope.measured, envelope.few], np.float64),
    }


def _envelope(arrays: Arrays) -> Envelope:
    floor, measured, few = arrays["rest"].tolist()
    return Envelope(arrays["top"], arrays["full"], floor, bool(measured), bool(few))
