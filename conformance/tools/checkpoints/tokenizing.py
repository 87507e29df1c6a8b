"""Encodes prompts with a checkpoint's own tokenizer, in a separate process.

A damaged or hostile tokenizer may abort native code, take all memory, or never end. The error then
blames the tokenizer's file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil

from conformance.core.errors import CheckpointError, ModelError, Unsupported
from conformance.core.guarded_call import EndedError, Limits, NotBegunError, guarded_call
from conformance.core.library import Library
from conformance.core.remote_code import sealed
from conformance.core.unavailable import error_text
from conformance.core.user_files import decoded, parse_object, read_bytes

FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "*.tiktoken")
"""A folder with any of these files has a tokenizer; an error names the first one."""

# The largest known tokenizers take some ten seconds and 1 GB.
_SECONDS = 120.0
_MOST_BYTES = 4 * 1024**3
_SHARE = 0.8  # of the available memory

_BLAME = (
    "{file}: can't be used: loading this tokenizer and encoding prompts with it {what}; take the "
    "file of the original model"
)

Texts = tuple[tuple[int, ...], ...]


def encoded(library: Library, folder: Path, texts: Sequence[str], *, trusted: bool) -> Texts:
    """The token ids of each text, without special tokens.

    Raises:
        CheckpointError: the folder has no tokenizer, it can't be loaded, or loading it ends the
            process; names the file.
        Unsupported: the library can't encode text here.
    """
    file = _tokenizer_file(folder)
    asked = (library, folder, tuple(texts), trusted)
    most = min(_MOST_BYTES, int(psutil.virtual_memory().available * _SHARE))
    try:
        answer = guarded_call(_answer, *asked, limits=Limits(_SECONDS, most))
    except NotBegunError:  # the library's module exists only in this process
        answer = _answer(*asked)
    except EndedError as error:
        raise CheckpointError(_BLAME.format(file=file, what=error)) from error
    found = msgspec.msgpack.decode(answer, type=_Answer)
    if found.panic:
        raise CheckpointError(_BLAME.format(file=file, what=f"ends in {found.panic}"))
    if found.unsupported:
        raise Unsupported(found.unsupported)
    if found.failed:
        raise CheckpointError(f"{folder}: its tokenizer can't be loaded: {found.failed}")
    return found.ids


class _Answer(msgspec.Struct, frozen=True):
    """Token ids, or the reason why there are none."""

    ids: Texts = ()
    unsupported: str = ""
    failed: str = ""
    panic: str = ""


def _answer(library: Library, folder: Path, texts: tuple[str, ...], trusted: bool) -> bytes:  # noqa: FBT001 - called from another process
    return msgspec.msgpack.encode(_tried(library, folder, texts, trusted=trusted))


def _tried(library: Library, folder: Path, texts: tuple[str, ...], *, trusted: bool) -> _Answer:
    try:
        with sealed(folder, trusted=trusted):
            return _Answer(library.tokenize(folder, texts, trusted=trusted))
    except Unsupported as error:
        return _Answer(unsupported=str(error))
    except ModelError as error:
        reason = " ".join(str(error).split())
        if "trust_remote_code" in reason:
            reason = "it is Python code of the folder; --trust-remote-code allows that to be run"
        return _Answer(failed=reason)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - what Rust raises of a panic is no Exception
        return _Answer(panic=error_text(error))


def _tokenizer_file(folder: Path) -> Path:
    found = [path for name in FILES for path in sorted(folder.glob(name))]
    if not found:
        raise CheckpointError(f"{folder}: holds no tokenizer ({', '.join(FILES)})")
    return found[0]


MOST_GROWTH = 10_000
"""Limit for the length of a text; normalizers of known tokenizers keep it or double a blank."""

_NAME = "tokenizer.json"
_FILE_MOST_BYTES = 400_000_000  # the largest known has 35 MB
_PARTS = ("normalizer", "pre_tokenizer")
_LISTS = ("normalizers", "pretokenizers")


def check_tokenizer(folder: Path) -> None:
    """Check that the folder's ``tokenizer.json``, if there is one, does not multiply its text.

    A chain of replacements, each of one letter by many, would turn a short prompt into gigabytes.
    That ends the process without an exception that names the cause.

    Raises:
        CheckpointError: the file can't be read, or its replacements multiply; names the file.
    """
    path = folder / _NAME
    if not path.exists():
        return
    data = read_bytes(path, CheckpointError, most=_FILE_MOST_BYTES)
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
