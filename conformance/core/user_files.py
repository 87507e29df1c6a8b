"""Reads files from users: bounded in size and time; an error is reported in one sentence.

Every reader of such a file starts here: a device, a pipe, a file of gigabytes, text that is not
UTF-8, JSON nested a million deep and integers of a million digits all raise the reader's own kind
of ``ConformanceError``, which names the file.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from conformance.core.errors import ConformanceError

MOST_BYTES = 2_000_000_000
"""Size limit of a result file; a whole run of all families has some 50 MB."""

CONFIG_BYTES = 32_000_000
"""Size limit of a config, index, expectations or family file; the largest known index has 20 MB."""

_DEEPEST = 200  # brackets within brackets; a config has some ten
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_SHOWN = 200  # characters of a parser's message, which may quote the file

T = TypeVar("T")


def open_file(path: Path, failed: type[ConformanceError]) -> BinaryIO:
    """A regular file, opened; links are followed.

    Raises:
        ConformanceError: of the type ``failed``; the file can't be read, or is a folder, a pipe or
            a device.
    """
    try:
        # Without O_NONBLOCK, opening a pipe without a writer would block.
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        raise failed(f"{path}: can't be read: {_reason(error)}") from error
    mode = os.fstat(file.fileno()).st_mode
    if not stat.S_ISREG(mode):
        file.close()
        raise failed(f"{path}: can't be read: is {_kind(mode)}, no file")
    return file


def check_regular(folder: Path, failed: type[ConformanceError]) -> None:
    """Check that a folder for other readers contains only files and folders.

    Raises:
        ConformanceError: of the type ``failed``; a reader would wait for a pipe, or read a device
            without end; the message names it.
    """
    for path in sorted(folder.iterdir()):
        with contextlib.suppress(OSError):  # a broken link is a missing file
            mode = path.stat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise failed(f"{path}: can't be read: is {_kind(mode)}, no file")


def read_bytes(path: Path, failed: type[ConformanceError], *, most: int = CONFIG_BYTES) -> bytes:
    """The content of a regular file; links are followed.

    Raises:
        ConformanceError: of the type ``failed``; it can't be read, is a folder, a pipe or a device,
            or has more than ``most`` bytes.
    """
    try:
        with open_file(path, failed) as file:
            data = file.read(most + 1)
    except OSError as error:
        raise failed(f"{path}: can't be read: {_reason(error)}") from error
    if len(data) > most:
        raise failed(f"{path}: can't be read: has more than {most / 1e6:.0f} MB")
    return data


def read_text(path: Path, failed: type[ConformanceError], *, most: int = CONFIG_BYTES) -> str:
    """The text of a UTF-8 file, without a byte order mark.

    Raises:
        ConformanceError: of the type ``failed``; as in ``read_bytes``, or it is not UTF-8.
    """
    return decoded(read_bytes(path, failed, most=most), str(path), failed)


def decoded(data: bytes, where: str, failed: type[ConformanceError]) -> str:
    """``data`` as text.

    Raises:
        ConformanceError: of the type ``failed``; it is not UTF-8.
    """
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise failed(f"{where}: is not UTF-8 text") from error


def parse_json(text: str, where: str, failed: type[ConformanceError]) -> Any:
    """Parse JSON; ``where`` names its source in the error message.

    Infinities and NaN are accepted, since configs of mamba models have them.

    Raises:
        ConformanceError: of the type ``failed``; it is not JSON, or absurd.
    """
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise failed(f"{where}: not JSON, line {error.lineno}: {error.msg}") from error
    except RecursionError as error:
        raise failed(f"{where}: not read: it is nested too deep") from error
    except ValueError as error:
        raise failed(f"{where}: not read: an integer has thousands of digits") from error
    _check_depth(found, where, failed)
    if _HALF.search(text):
        _check_letters(found, where, failed)
    return found


def _check_letters(found: Any, where: str, failed: type[ConformanceError]) -> None:
    """Refuse halves of characters, which JSON may name but no text can hold."""
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise failed(f"{where}: not read: it has half of a character, \\ud...") from error


def parse_object(text: str, where: str, failed: type[ConformanceError]) -> dict[str, Any]:
    """The JSON object in ``text``; ``where`` names its source in the error message.

    Raises:
        ConformanceError: of the type ``failed``; the text is something else.
    """
    found = parse_json(text, where, failed)
    if not isinstance(found, dict):
        raise failed(f"{where}: must be a JSON object, is a {type(found).__name__}")
    return found


def read_object(path: Path, failed: type[ConformanceError]) -> dict[str, Any]:
    """The JSON object of a file.

    Raises:
        ConformanceError: of the type ``failed``; the file can't be read or holds something else.
    """
    return parse_object(read_text(path, failed), str(path), failed)


def read_toml(path: Path, failed: type[ConformanceError]) -> dict[str, Any]:
    """The tables of a TOML file.

    Raises:
        ConformanceError: of the type ``failed``; the file can't be read or is not TOML.
    """
    return parse_toml(read_text(path, failed), str(path), failed)


def parse_toml(text: str, where: str, failed: type[ConformanceError]) -> dict[str, Any]:
    """The tables of a text.

    Args:
        where: the file, for the message.

    Raises:
        ConformanceError: of the type ``failed``; the text is not TOML.
    """
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise failed(f"{where}: not TOML: {_short(error)}") from error
    except RecursionError as error:
        raise failed(f"{where}: not read: it is nested too deep") from error
    except (ValueError, OverflowError) as error:  # a number or a date
        raise failed(f"{where}: not TOML: {_short(error)}") from error
    _check_depth(found, where, failed)
    return found


def typed_json(data: str | bytes, kind: type[T], where: str, failed: type[ConformanceError]) -> T:
    """Parse JSON as a ``kind`` of msgspec.

    Raises:
        ConformanceError: of the type ``failed``; it is not JSON, or not of that kind; the message
            names the field.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError) as error:
        raise failed(f"{where}: {_short(error)}") from error
    except RecursionError as error:
        raise failed(f"{where}: not read: it is nested too deep") from error


def typed(found: Any, kind: type[T], where: str, failed: type[ConformanceError]) -> T:
    """Convert a parser's result to a ``kind`` of msgspec.

    Raises:
        ConformanceError: of the type ``failed``; it is not of that kind; the message names the
            field.
    """
    try:
        return msgspec.convert(found, kind)
    except (msgspec.ValidationError, OverflowError) as error:
        raise failed(f"{where}: {_short(error)}") from error
    except RecursionError as error:
        raise failed(f"{where}: not read: it is nested too deep") from error


def _check_depth(found: Any, where: str, failed: type[ConformanceError]) -> None:
    """Refuse deep nesting: code that later walks through the content has no larger stack."""
    level = list(_inner([found]))
    for _ in range(_DEEPEST):
        level = [inner for outer in level for inner in _inner(outer)]
        if not level:
            return
    raise failed(f"{where}: not read: it is nested more than {_DEEPEST} deep")


def _inner(outer: Any) -> Iterator[Any]:
    inner = outer.values() if isinstance(outer, dict) else outer
    return (one for one in inner if isinstance(one, dict | list))


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))
    return next((name for is_it, name in kinds if is_it(mode)), "a device")


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."
