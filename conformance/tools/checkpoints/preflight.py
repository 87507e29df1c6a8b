"""Checks before a checkpoint is loaded: memory, and whether weights and config agree."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.backend.memory import available_bytes
from conformance.core.errors import CheckpointError, ModelError, Unsupported
from conformance.core.library import Library
from conformance.tools.checkpoints.folder import Folder

# The widest batch of the ladder, and the step in which the libraries' caches grow, in tokens.
_ROWS, _BLOCK = 33, 256
_LONGEST = 300  # characters of the library's message
_MISSING = re.compile(r"missing \d+ required (?:positional|keyword-only) arguments?: (.+)")


@dataclass(frozen=True)
class Memory:
    """Bytes that a run needs and that are available; ``available`` is ``None`` if unknown."""

    weights: int
    caches: int
    available: int | None

    @property
    def suffices(self) -> bool:
        """Whether the checkpoint can run here."""
        return self.available is None or self.weights + self.caches <= self.available

    def __str__(self) -> str:
        there = "unknown" if self.available is None else _gigabytes(self.available)
        return (
            f"{_gigabytes(self.weights)} of weights and about {_gigabytes(self.caches)} of caches "
            f"are needed, {there} available"
        )


def room(folder: Folder, dtype: str, *, force: bool = False) -> Memory:
    """The memory that a checkpoint needs in a dtype.

    Raises:
        CheckpointError: less is available, unless ``force``.
    """
    memory = Memory(folder.nbytes(dtype), cache_bytes(folder.config, dtype), available_bytes())
    if not memory.suffices and not force:
        raise CheckpointError(f"{folder.path}: {memory}; --force runs it all the same")
    return memory


def cache_bytes(config: Mapping[str, Any], dtype: str) -> int:
    """Keys and values of the widest batch, in bytes; 0 if the config lacks the sizes.

    An upper bound: some layers keep less than the keys and values of all tokens.
    """
    text = {**config, **(config.get("text_config") or {})}
    names = ("num_hidden_layers", "num_attention_heads", "hidden_size")
    found = [text[name] for name in names if isinstance(text.get(name), int) and text[name] > 0]
    if len(found) < len(names):
        return 0
    layers, heads, hidden = (int(number) for number in found)
    kept = _count(text.get("num_key_value_heads")) or heads
    size = _count(text.get("head_dim")) or hidden // heads
    return _ROWS * _BLOCK * layers * 2 * kept * size * (4 if dtype == "float32" else 2)


def _count(value: object) -> int:
    """A number from a config; 0 if the value is not a number."""
    return value if isinstance(value, int) else 0


def fits(library: Library, folder: Folder, *, trusted: bool) -> None:
    """Check with the library's own loader that config and weights agree.

    Raises:
        CheckpointError: the config lacks a field, or a parameter does not agree with it.
        Unsupported: the library has no such model.
    """
    try:
        library.check(folder.path, trusted=trusted)
    except Unsupported as error:
        message = " ".join(str(error).split())
        raise Unsupported(f"{folder.path}: {_short(message)}") from error
    except ModelError as error:
        message = " ".join(str(error).split())
        if found := _MISSING.search(message):
            raise CheckpointError(
                f"{folder.path / 'config.json'}: lacks the field {found[1]}, which {library.name} "
                f"needs for a {folder.config['model_type']}"
            ) from error
        raise CheckpointError(f"{_place(folder, message)}: {_short(message)}") from error


def _place(folder: Folder, message: str) -> Path:
    """The file of the first tensor that the message names; the folder if it names none."""
    named = [name for name in folder.tensors if re.search(rf"\b{re.escape(name)}\b", message)]
    first = min(named, key=message.index, default=None)
    return folder.path if first is None else folder.path / folder.tensors[first].file


def _short(message: str) -> str:
    return message if len(message) <= _LONGEST else message[:_LONGEST].rsplit(" ", 1)[0] + " ..."


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.3g} GB"
