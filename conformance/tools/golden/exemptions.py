"""Families without a golden, each with its reason: ``golden/without.toml``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from conformance.core.errors import GoldenError
from conformance.core.user_files import read_toml

NAME = "without.toml"


def load_without(root: Path) -> Mapping[tuple[str, str], str]:
    """The reason for each family, by library and name; empty if the file does not exist.

    Raises:
        GoldenError: the file is not valid; names the field.
    """
    path = root / NAME
    if not path.exists():
        return {}
    content = read_toml(path, GoldenError)
    found = {}
    for library, families in content.items():
        if not isinstance(families, dict):
            raise GoldenError(f"{path}: field {library!r} must be a table of families")
        for family, reason in families.items():
            if not isinstance(reason, str) or not reason:
                raise GoldenError(f"{path}: field '{library}.{family}' must give a reason")
            found[library, family] = reason
    return found
