"""The results for known defects as lines of JSON, from which a later call can continue."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from conformance.checks.expectations import Defect
from conformance.checks.expectations.loading import OWN
from conformance.core.errors import ReproError
from conformance.core.user_files import typed_json
from conformance.tools.repro.known_scripts import KnownScript

TABLE = "table.jsonl"
"""The table's name in the scripts folder."""


def found_before(expectations: Path | None = None) -> dict[str, KnownScript]:
    """The table of ``scripts/`` in a folder of expectations, by default the project's own.

    Empty if there is no such table.

    Raises:
        ReproError: the table cannot be read.
    """
    return read_folder((OWN if expectations is None else expectations) / "scripts")


def read_folder(folder: Path) -> dict[str, KnownScript]:
    """The table of a folder, if there is one.

    Raises:
        ReproError: it cannot be read; says which line.
    """
    path = folder / TABLE
    if not path.is_file():
        return {}
    try:
        return read_table(path.read_bytes())
    except (OSError, ReproError) as error:
        raise ReproError(f"{path}: {error}") from error


def table_lines(made: Iterable[KnownScript]) -> Iterator[str]:
    """A line of JSON for each entry, without its script."""
    for item in made:
        yield msgspec.json.encode(msgspec.structs.replace(item, script="")).decode()


def read_table(text: bytes) -> dict[str, KnownScript]:
    """The results that ``table_lines`` wrote, by the entries' ids.

    Raises:
        ReproError: a line is invalid; says which.
    """
    found = {}
    for number, line in enumerate(text.splitlines(), start=1):
        where = f"line {number} is not a line of its table"
        item = typed_json(line, KnownScript, where, ReproError)
        found[item.entry] = item
    return found


def tried_before(made: Mapping[str, KnownScript], entry: Defect) -> bool:
    """Whether the entry was tried with the installed release."""
    version = importlib.metadata.version(entry.package)
    return entry.id in made and made[entry.id].version == version


def without(made: Iterable[KnownScript]) -> dict[str, list[str]]:
    """The entries without a script, by their shared reason; the most frequent reason first."""
    groups: dict[str, list[str]] = {}
    for item in made:
        if not item.shows:
            groups.setdefault(item.group, []).append(item.entry)
    return dict(sorted(groups.items(), key=lambda pair: (-len(pair[1]), pair[0])))
