"""The corpus: schedules that once showed a defect, each in a file that is named by its content."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from conformance.core.errors import ScheduleError
from conformance.core.schedule import Schedule, validate
from conformance.core.verdict import Verdict
from conformance.tools.explore.records import Discovery

# In a clone a link to the folder at the top, in an installed package a copy of it.
OWN = Path(__file__).parent / "corpus"

_DIGITS = 12


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of the corpus.

    Attributes:
        library: whose families are meant; any engine of it plays the schedule.
        engine: the engine that showed it, on ``family`` in ``dtype`` with weights of ``seed``.
        versions: of the packages it was found with.
        verdict: what it was found to be; ``what`` in words.
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
        """From what is played and on what, so that one schedule is kept once."""
        played = (self.library, self.family, msgspec.structs.replace(self.schedule, name=""))
        return hashlib.sha256(msgspec.json.encode(played)).hexdigest()[:_DIGITS]


def read_corpus(folder: Path | None = None) -> tuple[Entry, ...]:
    """All entries of a folder, by name; by default of the project's own ``corpus/``.

    Raises:
        ScheduleError: a file is no entry, or not named by its content; says which.
    """
    folder = OWN if folder is None else folder
    return tuple(_read(path) for path in sorted(folder.glob("*.json")))


def _read(path: Path) -> Entry:
    try:
        entry = msgspec.json.decode(path.read_bytes(), type=Entry)
        validate(entry.schedule)
    except (OSError, msgspec.MsgspecError, ScheduleError) as error:
        raise ScheduleError(f"{path}: no entry of the corpus: {error}") from error
    if path.stem != entry.name:
        raise ScheduleError(f"{path}: its content has the name {entry.name}: rename the file")
    return entry


def entry_of(discovery: Discovery, library: str, versions: dict[str, str]) -> Entry:
    """What is kept of a discovery."""
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
    """Write the entry, whole or not at all; one that is there already stays as it is."""
    path = folder / f"{entry.name}.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".part")
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(entry), indent=1) + b"\n")
        draft.replace(path)
    return path
