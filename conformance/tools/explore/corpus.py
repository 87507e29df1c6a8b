"""The corpus: schedules that found a defect, each in a file named by the hash of its content."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import msgspec

from conformance.core.errors import ScheduleError
from conformance.core.family import Family
from conformance.core.schedule import Schedule, validate
from conformance.core.user_files import read_bytes, typed_json
from conformance.core.verdict import Verdict
from conformance.scenarios import Brief, Scenario
from conformance.scenarios.features import NEEDS, features_of
from conformance.tools.explore.results import Discovery

# A link to the top-level folder in a clone, a copy of it in an installed package.
OWN = Path(__file__).parent / "corpus"

_DIGITS = 12


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of the corpus.

    Attributes:
        library: of the family; any engine of this library can run the schedule.
        engine: the engine that found it, on ``family`` in ``dtype`` with weights of ``seed``.
        versions: of the packages at that time.
        verdict: of the finding; ``what`` is its text.
    """

    library: str
    engine: str
    family: str
    dtype: str
    seed: int
    versions: dict[str, str]
    verdict: Verdict
    what: str
    schedule: Schedule

    @property
    def name(self) -> str:
        """A hash of the schedule and the family, so that each schedule is kept once."""
        played = (self.library, self.family, msgspec.structs.replace(self.schedule, name=""))
        return hashlib.sha256(msgspec.json.encode(played)).hexdigest()[:_DIGITS]


def read_corpus(folder: Path | None = None) -> tuple[Entry, ...]:
    """All entries of a folder, by name; by default of the project's own ``corpus/``.

    Raises:
        ScheduleError: a file is not an entry, or its name does not match its content; names it.
    """
    folder = OWN if folder is None else folder
    return tuple(_read(path) for path in sorted(folder.glob("*.json")))


def _read(path: Path) -> Entry:
    where = f"{path}: not an entry of the corpus"
    entry = typed_json(read_bytes(path, ScheduleError), Entry, where, ScheduleError)
    try:
        validate(entry.schedule)
    except ScheduleError as error:
        raise ScheduleError(f"{where}: {error}") from error
    if path.stem != entry.name:
        raise ScheduleError(f"{path}: the name for its content is {entry.name}: rename the file")
    return entry


def entry_of(discovery: Discovery, library: str, versions: dict[str, str]) -> Entry:
    """The entry for a discovery."""
    return Entry(
        library,
        discovery.engine,
        discovery.family,
        discovery.dtype,
        0,
        versions,
        discovery.verdict,
        discovery.what,
        msgspec.structs.replace(discovery.schedule, name="kept"),
    )


def write_entry(entry: Entry, folder: Path) -> Path:
    """Write the entry atomically, unless it exists already."""
    path = folder / f"{entry.name}.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".part")
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(entry), indent=1) + b"\n")
        draft.replace(path)
    return path


@functools.cache
def _corpus() -> tuple[Entry, ...]:
    return read_corpus()


def _applies(family: Family) -> str:
    mine = (family.facts.library, family.name)
    if any((entry.library, entry.family) == mine for entry in _corpus()):
        return ""
    return "no schedule of the corpus was found on it"


def _make(brief: Brief) -> list[Schedule]:
    """The family's schedules that the engine can play, named like their files."""
    return [
        msgspec.structs.replace(entry.schedule, name=entry.name)
        for entry in _corpus()
        if (entry.library, entry.family) == (brief.library, brief.family)
        if all(NEEDS[feature] <= brief.capabilities for feature in features_of(entry.schedule))
    ]


CORPUS = Scenario(
    "corpus",
    200,
    "schedules that exploring once found to show a defect",
    frozenset(),
    _make,
    applies=_applies,
)
