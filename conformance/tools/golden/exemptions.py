"""Families that have no golden, each with its reason: ``golden/without.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from conformance.core.errors import GoldenError

NAME = "without.toml"


def load_without(root: Path) -> Mapping[tuple[str, str], str]:
    """The reason for each family, by library and family; empty if the file does not exist.

    Raises:
        GoldenError: the file is not valid; names the field.
    """
    path = root / NAME
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise GoldenError(f"{path}: cannot be read: {error}") from error
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise GoldenError(f"{path}: not TOML: {error}") from error
    found = {}
    for library, families in content.items():
        if not isinstance(families, dict):
            raise GoldenError(f"{path}: field {library!r} must be a table of families")
        for family, reason in families.items():
            if not isinstance(reason, str) or not reason:
                raise GoldenError(f"{path}: field '{library}.{family}' must give a reason")
            found[library, family] = reason
    return found
