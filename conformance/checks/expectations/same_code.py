"""Which known defects unreleased code has, by comparing the functions' source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from conformance.checks.expectations.bound_places import Bound, unchanged
from conformance.checks.expectations.entries import Defect, code_of
from conformance.core.errors import ExpectationError
from conformance.core.library_source import versions_of
from conformance.core.upstream_functions import places
from conformance.core.user_files import read_bytes, typed_json

FILE = "functions.json"

Recorded = Mapping[str, Mapping[str, Bound]]
"""By an entry's id: its places as they were diagnosed."""


def recorded_functions(folder: Path) -> Recorded:
    """The content of the folder's file; empty if there is none.

    Raises:
        ExpectationError: it is malformed.
    """
    path = folder / FILE
    if not path.is_file():
        return {}
    data = read_bytes(path, ExpectationError)
    return typed_json(data, dict[str, dict[str, Bound]], str(path), ExpectationError)


def followed(entries: Iterable[Defect], recorded: Recorded) -> tuple[Defect, ...]:
    """The entries, each with whether the installed code has the functions that it is about.

    A release that an entry names has the defect, whatever its source.
    """
    entries = tuple(
        msgspec.structs.replace(entry, functions=dict(recorded.get(entry.id, {})))
        for entry in entries
    )
    installed = {package: versions_of(package) for package in {entry.package for entry in entries}}
    others = {
        e.id for e in entries if installed[e.package] and not e.released(installed[e.package])
    }
    return tuple(
        _compared(e, code_of(e.package, installed[e.package]))
        if e.id in others and e.functions
        else e
        for e in entries
    )


def _compared(entry: Defect, code: str) -> Defect:
    field = "unchanged_in" if as_diagnosed(entry) else "changed_in"
    return msgspec.structs.replace(entry, **{field: code})


def as_diagnosed(entry: Defect) -> bool:
    """Whether the installed functions are the diagnosed ones."""
    pairs = ((place, entry.functions.get(str(place))) for place in places(entry.where))
    return all(unchanged(place, bound) for place, bound in pairs if bound is not None)
