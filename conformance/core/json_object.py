"""Reads JSON objects that users write, and reports what is wrong with one in a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from conformance.core.errors import ConformanceError


def read_object(path: Path, failed: type[ConformanceError]) -> dict[str, Any]:
    """The JSON object of a file.

    Raises:
        ConformanceError: of the type ``failed``; the file can't be read or holds something else.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise failed(f"{path}: can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise failed(f"{path}: is not UTF-8 text") from error
    return parse_object(text, str(path), failed)


def parse_object(text: str, where: str, failed: type[ConformanceError]) -> dict[str, Any]:
    """The JSON object in ``text``; ``where`` names its source in the error message.

    Raises:
        ConformanceError: of the type ``failed``; the text is something else.
    """
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise failed(f"{where}: not JSON, line {error.lineno}: {error.msg}") from error
    if not isinstance(found, dict):
        raise failed(f"{where}: must be a JSON object, is a {type(found).__name__}")
    return found
