"""Which known defects unreleased code has, by comparing the functions' source.

For each entry, ``functions.json`` in the entries' folder has the upstream functions that ``where``
names, with digests; ``ci/upstream_functions.py`` writes it. It also has the digests of whole files:
if a file is unchanged, it need not be parsed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from conformance.checks.expectations.entries import Defect, code_of
from conformance.core.errors import ExpectationError
from conformance.core.library_source import versions_of
from conformance.core.upstream_functions import (
    digests,
    function_at,
    places,
    source_text,
    text_digest,
)
from conformance.core.user_files import read_bytes, typed_json

FILE = "functions.json"

Recorded = Mapping[str, Mapping[str, str]]
"""By an entry's id: digests by ``mlx_lm/models/cache.py:ArraysCache.extract``, and by file."""


def recorded_functions(folder: Path) -> Recorded:
    """The content of the folder's file; empty if there is none.

    Raises:
        ExpectationError: it is malformed.
    """
    path = folder / FILE
    if not path.is_file():
        return {}
    data = read_bytes(path, ExpectationError)
    return typed_json(data, dict[str, dict[str, str]], str(path), ExpectationError)


def functions_of(entry: Defect) -> dict[str, str]:
    """The installed functions that the entry names, and their files, with digests.

    A line outside of all functions, or in a file that is not installed, gives none.
    """
    found = {}
    for file, line in places(entry.where):
        text = source_text(file)
        if text and (name := function_at(text, line)):
            found[f"{file}:{name}"] = _digests_of(file)[name]
            found[file] = text_digest(text)
    return found


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
    place = "unchanged_in" if as_diagnosed(entry) else "changed_in"
    return msgspec.structs.replace(entry, **{place: code})


def as_diagnosed(entry: Defect) -> bool:
    """Whether the installed functions are the diagnosed ones."""
    functions = [(*p.split(":"), found) for p, found in entry.functions.items() if ":" in p]
    return all(
        _same_file(file, entry.functions) or _digests_of(file).get(name) == found
        for file, name, found in functions
    )


def _same_file(file: str, recorded: Mapping[str, str]) -> bool:
    return file in recorded and recorded[file] == _file_digest(file)


@functools.cache
def _file_digest(file: str) -> str:
    return text_digest(source_text(file) or "")


@functools.cache
def _digests_of(file: str) -> dict[str, str]:
    return digests(source_text(file) or "")
