"""What was tried of known defects, as lines of JSON that a later call goes on from."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from conformance.checks.expectations import Defect
from conformance.core.errors import ReproError
from conformance.tools.repro.known import KnownScript


def table_lines(made: Iterable[KnownScript]) -> Iterator[str]:
    """A line of JSON for each entry, without its script."""
    for item in made:
        yield msgspec.json.encode(msgspec.structs.replace(item, script="")).decode()


def read_table(text: bytes) -> dict[str, KnownScript]:
    """What ``table_lines`` wrote, by the entries' ids.

    Raises:
        ReproError: a line is none of those; says which.
    """
    found = {}
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            item = msgspec.json.decode(line, type=KnownScript)
        except msgspec.MsgspecError as error:
            raise ReproError(f"line {number} is no line of its table: {error}") from error
        found[item.entry] = item
    return found


def tried_before(made: Mapping[str, KnownScript], entry: Defect) -> bool:
    """Whether the entry was tried with the release that is installed."""
    version = importlib.metadata.version(entry.package)
    return entry.id in made and made[entry.id].version == version


def without(made: Iterable[KnownScript]) -> dict[str, list[str]]:
    """The entries without a script, by the reason that they share; the most frequent first."""
    groups: dict[str, list[str]] = {}
    for item in made:
        if not item.shows:
            groups.setdefault(item.group, []).append(item.entry)
    return dict(sorted(groups.items(), key=lambda pair: (-len(pair[1]), pair[0])))
