"""Reads a file of known defects that do not concern cases, but cache classes or functions."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path
from typing import TypeVar

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from conformance.core.errors import ExpectationError
from conformance.core.user_files import read_toml, typed


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One known defect.

    Attributes:
        id: its name.
        says: a pattern that the finding's text must match.
        where: file and line upstream.
        why: why it is wrong.
        package: the package that ``versions`` is about.
        versions: releases that have it.
        script: the standalone script that shows it.
    """

    id: str
    says: str = ""
    where: str
    why: str
    package: str
    versions: str
    script: str

    def active(self) -> bool:
        """Whether the installed release has it."""
        try:
            installed = importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:
            return False
        return SpecifierSet(self.versions).contains(installed, prereleases=True)


T = TypeVar("T", bound=Entry)


def read_entries(path: Path, kind: type[T]) -> tuple[T, ...]:
    """All entries of the file, each written as ``[[defect]]``.

    Raises:
        ExpectationError: the file is invalid; the message names the entry.
    """
    tables = read_toml(path, ExpectationError).get("defect", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ExpectationError(f"{path}: field 'defect' must be written as [[defect]]")
    found: list[T] = []
    for number, table in enumerate(tables, start=1):
        name = f"{path}: defect {table.get('id') or f'number {number}'!r}"
        entry = typed(table, kind, name, ExpectationError)
        try:
            SpecifierSet(entry.versions)
            re.compile(entry.says)
        except (InvalidSpecifier, re.error) as error:
            raise ExpectationError(f"{name}: {error}") from error
        if any(entry.id == other.id for other in found):
            raise ExpectationError(f"{name}: this id is used twice")
        found.append(entry)
    return tuple(found)
