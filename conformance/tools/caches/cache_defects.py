"""Known defects of cache classes: which finding each explains."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from conformance.checks.expectations import loading as expectations
from conformance.core.errors import ExpectationError
from conformance.core.user_files import read_toml
from conformance.tools.caches.discovery import Found
from conformance.tools.caches.finding import WHATS, FindingError
from conformance.tools.caches.sequences import replay

# Below the folder of expectations: a file beside the others would be read as one of theirs.
OWN = expectations.OWN / "caches" / "known.toml"


class CacheDefect(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename={"cls": "class"}
):
    """One known defect of cache classes.

    Attributes:
        id: names it.
        cls: globs of ``library.Class``.
        verb: globs of the verbs at which it shows.
        what: in what: contents, mask, offset and so on.
        says: a pattern that the text of the finding must hold.
        facts: all that must be true of the cache or of the sequence.
        where: file and line upstream.
        why: why it is wrong.
        package: whose ``versions`` are meant.
        versions: releases that have it.
        script: the standalone script that shows it.
        play: the sequence of verbs at which it shows, as ``--json`` writes it.
    """

    id: str
    cls: tuple[str, ...]
    verb: tuple[str, ...] = ("*",)
    what: tuple[str, ...]
    says: str = ""
    facts: tuple[str, ...] = ()
    where: str
    why: str
    package: str
    versions: str
    script: str
    play: str

    def explains(self, finding: FindingError) -> bool:
        """Whether the finding is this defect."""
        return (
            any(fnmatchcase(finding.name, pattern) for pattern in self.cls)
            and any(fnmatchcase(finding.verb, pattern) for pattern in self.verb)
            and finding.problem.what in self.what
            and re.search(self.says, finding.problem.text) is not None
            and set(self.facts) <= finding.facts
        )

    def active(self) -> bool:
        """Whether the installed release has it."""
        try:
            installed = importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:
            return False
        return SpecifierSet(self.versions).contains(installed, prereleases=True)

    @property
    def played(self) -> str:
        """The class that its sequence is for."""
        return self.play.split(" ", 1)[0]


def load_cache_defects(path: Path = OWN) -> tuple[CacheDefect, ...]:
    """The entries for the installed releases.

    Raises:
        ExpectationError: the file is not valid; names the entry.
    """
    tables = read_toml(path, ExpectationError).get("defect", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ExpectationError(f"{path}: field 'defect' must be written as [[defect]]")
    found: list[CacheDefect] = []
    for number, table in enumerate(tables, start=1):
        name = f"{path}: defect {table.get('id') or f'number {number}'!r}"
        try:
            entry = msgspec.convert(table, CacheDefect)
            SpecifierSet(entry.versions)
            re.compile(entry.says)
        except (msgspec.ValidationError, InvalidSpecifier, re.error) as error:
            raise ExpectationError(f"{name}: {error}") from error
        if wrong := set(entry.what) - WHATS:
            raise ExpectationError(f"{name}: 'what' knows no {sorted(wrong)}")
        if any(entry.id == other.id for other in found):
            raise ExpectationError(f"{name}: this id is used twice")
        found.append(entry)
    return tuple(entry for entry in found if entry.active())


def explain(defects: tuple[CacheDefect, ...], finding: FindingError) -> str | None:
    """The id of the first entry that explains the finding."""
    return next((entry.id for entry in defects if entry.explains(finding)), None)


def shows(entry: CacheDefect, classes: Sequence[Found], defects: tuple[CacheDefect, ...]) -> bool:
    """Whether the entry's own sequence still leads to it."""
    ids: list[str | None] = []

    def judge(finding: FindingError) -> bool:
        ids.append(explain(defects, finding))
        return ids[-1] is not None

    try:
        replay(entry.play, classes, judge)
    except FindingError:
        return False
    return entry.id in ids
