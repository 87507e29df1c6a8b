"""The generated lock file of a release: how each known defect shows there, by its own schedule.

A line is one entry in one family: the smallest schedule that was found to fail as the entry says,
and to be right with the entry's defect mended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from packaging.version import Version

from conformance.core.errors import ConformanceError, ExpectationError
from conformance.core.output_files import write_whole
from conformance.core.schedule import Schedule, validate
from conformance.core.user_files import read_bytes, typed_json
from conformance.core.verdict import CaseId, Verdict

FOLDER = "lock"
"""The folder of lock files in a folder of expectations."""


class Locked(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How an entry shows in one family.

    Attributes:
        entry: its id.
        case: the case whose engine, family, dtype and seed run the schedule.
        verdict: of the schedule as released, which is one that the entry names; with ``beside``,
            of the schedule with these mended.
        schedule: with the name of the one of the scenario that it was made from.
        beside: ids of the family's other entries, which are mended in each run: the schedule shows
            some of them, too.
        unfinished: time was up before nothing smaller was left to try.
    """

    entry: str
    case: str
    verdict: Verdict
    schedule: Schedule
    beside: tuple[str, ...] = ()
    unfinished: bool = False

    @property
    def family(self) -> str:
        """The family that runs it."""
        return CaseId.parse(self.case).family

    @property
    def place(self) -> tuple[str, str, str]:
        """What it is the only line about: the entry, on an engine, in a family."""
        case = CaseId.parse(self.case)
        return self.entry, case.engine, case.family


class PlayedLock(msgspec.Struct, frozen=True):
    """What a line's schedule showed when it was played.

    Attributes:
        locked: the line's verdict.
        verdict: the one that it had now.
    """

    entry: str
    case: str
    locked: Verdict
    verdict: Verdict

    @property
    def shows(self) -> bool:
        """Whether it still shows the entry."""
        return self.verdict is self.locked

    @property
    def place(self) -> tuple[str, str, str]:
        """As of a ``Locked``."""
        case = CaseId.parse(self.case)
        return self.entry, case.engine, case.family


def lock_file(folder: Path, package: str, version: str) -> Path:
    """Where the lock of a release is, in a folder of expectations."""
    return folder / FOLDER / f"{package}-{version}.jsonl"


def newest_lock(folder: Path, package: str, version: str) -> Path | None:
    """The release's own lock; else that of the newest release before it, or of the oldest."""
    start = f"{package}-"
    found = {
        Version(path.stem.removeprefix(start)): path
        for path in (folder / FOLDER).glob(f"{start}[0-9]*.jsonl")
    }
    before = [release for release in found if release <= Version(version)]
    chosen = max(before) if before else min(found, default=None)
    return found[chosen] if chosen is not None else None


def read_lock(path: Path) -> tuple[Locked, ...]:
    """The lines of a lock file; none if there is no such file.

    Raises:
        ExpectationError: a line is none of a lock, or two are about the same; says which.
    """
    return tuple(_lines(path)) if path.is_file() else ()


def _lines(path: Path) -> Iterator[Locked]:
    there: set[tuple[str, str, str]] = set()
    for number, line in enumerate(read_bytes(path, ExpectationError).splitlines(), start=1):
        where = f"{path}: line {number}"
        found = typed_json(line, Locked, where, ExpectationError)
        try:
            validate(found.schedule)
            place = found.place
        except ConformanceError as error:
            raise ExpectationError(f"{where}: {error}") from error
        if place in there:
            raise ExpectationError(f"{where}: there are two lines about {' in '.join(place)}")
        there.add(place)
        yield found


def write_lock(path: Path, lines: Iterable[Locked]) -> None:
    """Write the lines in the order of entries, engines and families, one for each."""
    last = {line.place: line for line in lines}
    text = "".join(f"{msgspec.json.encode(last[place]).decode()}\n" for place in sorted(last))
    path.parent.mkdir(exist_ok=True)
    write_whole(path, text)
