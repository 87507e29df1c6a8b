"""The tables of a file of known defects: of cases, of cache classes or of functions."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from conformance.checks.expectations.bound_places import Bound, shown
from conformance.core.errors import ExpectationError
from conformance.core.user_files import read_toml, typed


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What every entry about a defect has.

    Attributes:
        id: its name; unique in the folder.
        where: the places upstream, each as ``module:Class.method+line``.
        why: why it is wrong.
        package: the package that ``versions`` is about.
        versions: releases that have it.
        script: the standalone script that shows it.
    """

    id: str
    where: str
    why: str
    package: str
    versions: str
    script: str

    @property
    def at(self) -> str:
        """The places as file and line in the installed library."""
        return shown(self.where, self.bounds)

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """The places as they were diagnosed, if that is recorded."""
        return {}

    def in_release(self, version: str) -> bool:
        """Whether that release of the package has the defect."""
        return SpecifierSet(self.versions).contains(version, prereleases=True)


class FindingEntry(Entry, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A known defect that does not concern cases, but is found by its text.

    Attributes:
        says: a pattern that the finding's text must match.
    """

    says: str = ""

    def active(self) -> bool:
        """Whether the installed release has it."""
        try:
            return self.in_release(importlib.metadata.version(self.package))
        except importlib.metadata.PackageNotFoundError:
            return False


S = TypeVar("S", bound=msgspec.Struct)
F = TypeVar("F", bound=FindingEntry)


def read_entries(path: Path, kind: type[F]) -> tuple[F, ...]:
    """All entries of a file about other things than cases, each written as ``[[defect]]``.

    Raises:
        ExpectationError: the file is invalid; the message names the entry.
    """
    found = tables(path, read_toml(path, ExpectationError), "defect", kind, problem=_problem)
    ids = [entry.id for entry in found]
    if twice := [name for name in ids if ids.count(name) > 1]:
        raise ExpectationError(f"{path}: defect {twice[0]!r}: this id is used twice")
    return found


def tables(
    path: Path,
    content: Mapping[str, Any],
    name: str,
    kind: type[S],
    *,
    problem: Callable[[S], str],
    common: Mapping[str, Any] | None = None,
) -> tuple[S, ...]:
    """The entries of one kind.

    Args:
        path: the file, for messages.
        content: what was read from it.
        name: that of the tables.
        kind: what each becomes.
        problem: says what is wrong with an entry; empty if nothing.
        common: the defaults of the file.

    Raises:
        ExpectationError: an entry is invalid; the message names it.
    """
    listed = content.get(name, [])
    if not isinstance(listed, list) or not all(isinstance(table, dict) for table in listed):
        raise ExpectationError(f"{path}: field {name!r} must be written as [[{name}]]")
    found = []
    for number, table in enumerate(listed, start=1):
        where = f"{path}: {name} {table.get('id') or f'number {number}'!r}"
        entry = typed({**(common or {}), **table}, kind, where, ExpectationError)
        if wrong := problem(entry):
            raise ExpectationError(f"{where}: {wrong}")
        found.append(entry)
    return tuple(found)


def version_problem(entry: Entry) -> str:
    """What is wrong with the entry's releases; empty if nothing."""
    try:
        SpecifierSet(entry.versions)
    except InvalidSpecifier:
        return (
            f"field 'versions': {entry.versions!r} is not a specifier such as '>=0.32.0,<=0.32.2'"
        )
    return ""


def _problem(entry: FindingEntry) -> str:
    try:
        re.compile(entry.says)
    except re.error as error:
        return f"field 'says': {error}"
    return version_problem(entry)
