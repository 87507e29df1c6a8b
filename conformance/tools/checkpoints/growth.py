"""Refuses a tokenizer that makes its text grow without bounds, before a library loads it.

A chain of replacements, each of one letter by many, would turn a short prompt into gigabytes. That
ends the process without an exception that names the cause.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from conformance.core.errors import CheckpointError
from conformance.core.user_files import decoded, parse_object, read_bytes

MOST_GROWTH = 10_000
"""Limit for the length of a text; normalizers of known tokenizers keep it or double a blank."""

_NAME = "tokenizer.json"
_MOST_BYTES = 400_000_000  # the largest known has 35 MB
_PARTS = ("normalizer", "pre_tokenizer")
_LISTS = ("normalizers", "pretokenizers")


def check_tokenizer(folder: Path) -> None:
    """Check the folder's ``tokenizer.json``, if there is one.

    Raises:
        CheckpointError: the file can't be read, or its replacements multiply; names the file.
    """
    path = folder / _NAME
    if not path.exists():
        return
    data = read_bytes(path, CheckpointError, most=_MOST_BYTES)
    if b'"Replace"' not in data:
        return
    found = parse_object(decoded(data, str(path), CheckpointError), str(path), CheckpointError)
    growth = 1.0
    for part in _PARTS:
        growth *= _growth(found.get(part))
    if growth > MOST_GROWTH:
        raise CheckpointError(
            f"{path}: its replacements make a text more than {MOST_GROWTH} times as long, which "
            "no tokenizer needs and no machine has room for"
        )


def _growth(part: Any) -> float:
    """The largest factor by which a part may lengthen a text."""
    if not isinstance(part, dict):
        return 1.0
    growth = 1.0
    for inner in (one for name in _LISTS for one in _items(part.get(name))):
        growth = min(growth * _growth(inner), 2.0 * MOST_GROWTH)
    if part.get("type") == "Replace":
        content, pattern = part.get("content"), part.get("pattern")
        text = pattern.get("String") if isinstance(pattern, dict) else None
        replaced = len(text) if isinstance(text, str) and text else 1
        growth *= max(1.0, len(content) / replaced if isinstance(content, str) else 1.0)
    return growth


def _items(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []
