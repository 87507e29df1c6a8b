"""The contents of a checkpoint folder: its config, its safetensors headers, its digest.

Only headers are read, so a checkpoint of any size is checked quickly; errors name the damaged file
and the field.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from conformance.core.config_fields import check_config
from conformance.core.content_keys import text_digest
from conformance.core.errors import CheckpointError
from conformance.core.plain_text import is_plain, plain_line
from conformance.core.user_files import (
    check_regular,
    decoded,
    open_file,
    parse_object,
    read_object,
    typed,
)
from conformance.reference.sealed import write_cached

INDEX = "model.safetensors.index.json"
# A header is JSON; this is the format's own limit, in bytes.
_HEADER_MOST = 100_000_000
_MOST_DIMENSIONS = 64
_MOST_NAME = 255  # bytes, on the usual file systems
_NAME = 200  # the part of a tensor's name that is shown, in characters
_DIGEST = re.compile(r"[0-9a-f]{64}")
_BITS = {"BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4}
_BITS |= dict.fromkeys(("U16", "I16", "F16", "BF16"), 16)
_BITS |= dict.fromkeys(("U32", "I32", "F32"), 32) | dict.fromkeys(("U64", "I64", "F64"), 64)
_PICKLES = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"}
_OTHERS = {".npz", ".npy", ".gguf", ".h5", ".msgpack", ".onnx"}
_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True)
class Tensor:
    """One tensor as its file's header describes it: dtype in safetensors' spelling, shape, bytes.

    ``offset`` is the place in the file where its bytes begin.
    """

    file: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    offset: int


@dataclass(frozen=True)
class Folder:
    """A checkpoint folder after reading. ``files`` are the names of its safetensors files."""

    path: Path
    config: Mapping[str, Any]
    files: tuple[str, ...]
    tensors: Mapping[str, Tensor]

    @property
    def dtype(self) -> str:
        """The dtype of most of its floating-point numbers; quantized tensors do not count."""
        found = Counter(_DTYPES[t.dtype] for t in self.tensors.values() if t.dtype in _DTYPES)
        return found.most_common(1)[0][0] if found else "float32"

    def nbytes(self, dtype: str) -> int:
        """Bytes of all weights once floating-point ones are cast to ``dtype``."""
        size = 4 if dtype == "float32" else 2
        return sum(
            math.prod(tensor.shape) * size if tensor.dtype in _DTYPES else tensor.nbytes
            for tensor in self.tensors.values()
        )

    @property
    def key(self) -> str:
        """A name that changes with the name, size or modification time of any file."""
        stats = [(part, part.stat()) for part in self._parts]
        text = str([(str(part.absolute()), s.st_size, s.st_mtime_ns) for part, s in stats])
        return text_digest(text)

    @property
    def _parts(self) -> list[Path]:
        return [self.path / name for name in ("config.json", *self.files)]

    def digest(self, memory: Path) -> str:
        """SHA-256 of the config and of all weights.

        Args:
            memory: a folder that keeps digests; a kept one is used while ``key`` is the same.
        """
        known = memory / self.key
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if _DIGEST.fullmatch(found := known.read_text(encoding="ascii")):
                return found
        whole = hashlib.sha256()
        for part in self._parts:
            with part.open("rb") as file:
                inner = hashlib.file_digest(file, "sha256").hexdigest()
            whole.update(f"{part.name}\n{inner}\n".encode())
        with contextlib.suppress(OSError):  # optional; ``opening`` reports it
            write_cached(known, whole.hexdigest().encode())
        return whole.hexdigest()


def look(path: Path) -> Folder:
    """Read a checkpoint folder.

    Raises:
        CheckpointError: it is not a folder, a file is missing or damaged, or the config lacks a
            field.
    """
    if not path.is_dir():
        raise CheckpointError(f"{path}: is not a folder; --model takes a checkpoint's folder")
    check_regular(path, CheckpointError)
    config = read_config(path / "config.json")
    shards = _indexed(path)
    files = sorted(set(shards.values())) or [p.name for p in sorted(path.glob("*.safetensors"))]
    if not files:
        raise CheckpointError(f"{path}: holds no .safetensors{_other_weights(path)}")
    tensors: dict[str, Tensor] = {}
    for name in files:
        if not (path / name).is_file():
            raise CheckpointError(f"{path / name}: is missing, and {INDEX} names it")
        tensors |= read_header(path / name)
    for tensor, name in shards.items():
        if tensor not in tensors or tensors[tensor].file != name:
            raise CheckpointError(
                f"{path / name}: holds no tensor {tensor!r}, although {INDEX} lists it"
            )
    return Folder(path, config, tuple(files), tensors)


def _other_weights(path: Path) -> str:
    """The part of the message about weights in other formats; empty if the folder has none."""
    found = sorted(p.name for p in path.iterdir() if p.suffix in _PICKLES | _OTHERS)
    why = "weights in other formats are not read"
    if any(Path(name).suffix in _PICKLES for name in found):
        why += ", pickles among them may run any code"
    return f" but {', '.join(found[:3])}; {why}: convert them" if found else ""


def window_of(config: Mapping[str, Any]) -> int | None:
    """The sliding window that a config sets and uses, in tokens."""
    for part in (config, config.get("text_config") or {}):
        window = part.get("sliding_window")
        if isinstance(window, int) and window > 0 and part.get("use_sliding_window", True):
            return window
    return None


def read_config(path: Path) -> dict[str, Any]:
    """A checkpoint's ``config.json``.

    Raises:
        CheckpointError: it is missing, is not a JSON object, or has no ``model_type``.
    """
    config = read_object(path, CheckpointError)
    check_config(config, str(path), CheckpointError)
    if not isinstance(config.get("model_type"), str):
        raise CheckpointError(f"{path}: the field 'model_type' is missing or is not text")
    return config


def read_header(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name, without their contents.

    Source: the format's description, https://github.com/huggingface/safetensors.

    Raises:
        CheckpointError: the header is damaged, its tensors overlap, or the file is shorter or
            longer than it says; names the tensor.
    """
    with open_file(path, CheckpointError) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or not 2 <= length <= min(size - 8, _HEADER_MOST):
            raise CheckpointError(
                f"{path}: is damaged: it has {size} bytes, and its header claims {length}"
            )
        text = file.read(length)
    where = f"{path}: its header is damaged"
    header = parse_object(decoded(text, where, CheckpointError), where, CheckpointError)
    header.pop("__metadata__", None)
    entries = typed(header, dict[str, _Entry], where, CheckpointError)
    begin = 8 + length
    tensors = {name: _tensor(path, name, entry, begin) for name, entry in entries.items()}
    end = _end(path, entries)
    if size != 8 + length + end:
        what = "was cut off" if size < 8 + length + end else "has data after its tensors"
        raise CheckpointError(
            f"{path}: {what}: it has {size} bytes, and by its header {8 + length + end}"
        )
    return tensors


class _Entry(msgspec.Struct, frozen=True):
    """A header's entry for a tensor."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def _tensor(path: Path, name: str, entry: _Entry, begin: int) -> Tensor:
    """The tensor, after checking its shape against its bytes; file data start at ``begin``."""
    start, end = entry.data_offsets
    shape, bits = entry.shape, _BITS.get(entry.dtype)
    where = f"{path}: tensor {plain_line(name[:_NAME])!r}"
    if len(shape) > _MOST_DIMENSIONS or any(size < 0 for size in shape):
        raise CheckpointError(f"{where}: its shape of {len(shape)} dimensions is none of a tensor")
    if bits is not None and math.prod(shape) * bits != (end - start) * 8:
        raise CheckpointError(
            f"{where} of shape {list(shape)} and dtype {entry.dtype} claims {end - start} bytes"
        )
    return Tensor(path.name, entry.dtype, shape, end - start, begin + start)


def _end(path: Path, entries: Mapping[str, _Entry]) -> int:
    """The end of the last tensor, after checking that each begins where the previous one ends."""
    reached = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        start, end = entry.data_offsets
        if start != reached or end < start:
            what = "overlaps the one before it" if start < reached else "leaves bytes before it"
            where = f"{path}: tensor {plain_line(name[:_NAME])!r}"
            raise CheckpointError(f"{where}: 'data_offsets' [{start}, {end}]: it {what}")
        reached = end
    return reached


def _indexed(path: Path) -> dict[str, str]:
    """The file of each tensor, if the weights are in several files."""
    index = path / INDEX
    if not index.is_file():
        return {}
    found = read_object(index, CheckpointError).get("weight_map")
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise CheckpointError(f"{index}: the field 'weight_map' is missing or names no files")
    outside = [name for name in found.values() if not _is_name(name)]
    if outside:
        raise CheckpointError(
            f"{index}: 'weight_map' names {outside[0][:_NAME]!r}, outside of the folder"
        )
    return found


def _is_name(name: str) -> bool:
    """Whether it can be the name of a file in the folder."""
    return Path(name).name == name and is_plain(name) and len(name.encode()) <= _MOST_NAME
