"""Finds NaN and infinities in the weights of a checkpoint.

Tensors are read in pieces, so memory use does not depend on the checkpoint's size; findings are
kept for the next run.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from conformance.core.errors import CheckpointError
from conformance.core.library import Library
from conformance.core.plain_text import plain_line
from conformance.core.remote_code import sealed
from conformance.reference.sealed import write_cached
from conformance.tools.checkpoints.folder import Folder, Tensor

_PIECE = 2**24  # bytes per read
_KEPT = "-finite"  # suffix of the files in which findings are kept


class _Spelling(NamedTuple):
    """The encoding of a dtype: its unsigned type, all bits but the sign, the first infinity.

    ``nan`` is the first NaN; in a dtype without infinity both fields are equal.
    """

    unsigned: Any
    magnitude: int
    infinity: int
    nan: int


_E8M0 = _Spelling(np.uint8, 0xFF, 0xFF, 0xFF)
_E4M3 = _Spelling(np.uint8, 0x7F, 0x7F, 0x7F)
_SPELLINGS = {
    "F64": _Spelling(np.uint64, 2**63 - 1, 0x7FF << 52, (0x7FF << 52) + 1),
    "F32": _Spelling(np.uint32, 2**31 - 1, 0x7F800000, 0x7F800001),
    "F16": _Spelling(np.uint16, 2**15 - 1, 0x7C00, 0x7C01),
    "BF16": _Spelling(np.uint16, 2**15 - 1, 0x7F80, 0x7F81),
    "F8_E5M2": _Spelling(np.uint8, 2**7 - 1, 0x7C, 0x7D),
    "F8_E4M3": _E4M3,
    "F8_E8M0": _E8M0,
}
# These quantization modes store their scales as bytes.
_BYTE_SCALES = {"mxfp4": _E8M0, "mxfp8": _E8M0, "nvfp4": _E4M3}


class Odd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tensor with numbers that are not finite.

    Attributes:
        tensor: its name.
        count: how many of its numbers are not finite.
        nan: whether the first of them is NaN; else it is infinite.
        first: the flat index of the first.
        packed: the library keeps the tensor as bytes, so it does not show the numbers.
    """

    tensor: str
    count: int
    nan: bool
    first: int
    packed: bool


def check_finite(library: Library, folder: Folder, memory: Path, *, trusted: bool) -> None:
    """Check that all numbers that the library reads from the checkpoint are finite.

    Some checkpoints hold masks of infinities, which no model reads.

    Args:
        memory: a folder that keeps findings; they are valid while name, size and time of all
            files are unchanged.

    Raises:
        CheckpointError: some are not; names the file and the tensor.
    """
    found = _found(folder, memory)
    if not found:
        return
    odd = next((one for one in found if one.packed), None)
    if odd is None:
        with sealed(folder.path, trusted=trusted):
            path = library.not_finite(folder.path, trusted=trusted)
        if path is None:
            return
        odd = max(found, key=lambda one: _alike(one.tensor, path))
    raise CheckpointError(_blame(folder, odd))


def _alike(tensor: str, path: str) -> int:
    """How many parts the names have in common, counted from the end."""
    parts = zip(reversed(tensor.split(".")), reversed(path.split(".")), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], parts))


def _blame(folder: Folder, odd: Odd) -> str:
    tensor = folder.tensors[odd.tensor]
    place = [int(index) for index in np.unravel_index(odd.first, tensor.shape)]
    what = "NaN" if odd.nan else "an infinity"
    return (
        f"{folder.path / tensor.file}: tensor {plain_line(odd.tensor)!r} holds {what} at {place} "
        f"({odd.count} of its {math.prod(tensor.shape)} numbers are not finite), and a model only "
        "makes NaN of it; convert or download the checkpoint again"
    )


def _found(folder: Folder, memory: Path) -> tuple[Odd, ...]:
    known = memory / f"{folder.key}{_KEPT}"
    with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return msgspec.json.decode(known.read_bytes(), type=tuple[Odd, ...])
    found = tuple(not_finite(folder))
    with contextlib.suppress(OSError):  # optional; ``opening`` reports it
        write_cached(known, msgspec.json.encode(found))
    return found


def not_finite(folder: Folder) -> Iterator[Odd]:
    """Each tensor with numbers that are not finite, as stored in its file."""
    for name, tensor in folder.tensors.items():
        packed = _byte_scales(folder.config, name) if tensor.dtype == "U8" else None
        spelling = packed or _SPELLINGS.get(tensor.dtype)
        if spelling is None:
            continue
        count, nan, first = _looked_through(folder.path, tensor, spelling)
        if count:
            is_packed = spelling.unsigned is np.uint8
            yield Odd(name, count, nan=nan, first=first, packed=is_packed)


def _looked_through(path: Path, tensor: Tensor, spelling: _Spelling) -> tuple[int, bool, int]:
    """How many numbers are not finite, whether the first is NaN, and its index."""
    size = np.dtype(spelling.unsigned).itemsize
    count, nan, first = 0, False, 0
    with (path / tensor.file).open("rb") as file:
        file.seek(tensor.offset)
        for start in range(0, tensor.nbytes, _PIECE):
            piece = np.frombuffer(file.read(min(_PIECE, tensor.nbytes - start)), spelling.unsigned)
            bits = piece & spelling.unsigned(spelling.magnitude)
            odd = bits >= spelling.unsigned(spelling.infinity)
            if not odd.any():
                continue
            if not count:
                place = int(odd.argmax())
                nan, first = bool(bits[place] >= spelling.nan), start // size + place
            count += int(odd.sum())
    return count, nan, first


def _byte_scales(config: Mapping[str, Any], name: str) -> _Spelling | None:
    """The encoding of the scales of a quantized weight, if the tensor holds them as bytes."""
    if not name.endswith("scales"):
        return None
    module = name.rpartition(".")[0]
    for key in ("quantization", "quantization_config"):
        settings = config.get(key)
        if not isinstance(settings, Mapping):
            continue
        own = settings.get(module)
        for part in (own if isinstance(own, Mapping) else {}, settings):
            for field in ("mode", "quant_method"):
                if part.get(field) in _BYTE_SCALES:
                    return _BYTE_SCALES[part[field]]
    return None
