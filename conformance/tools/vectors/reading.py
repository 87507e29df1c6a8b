"""The files of exported vectors, and their reader, which checks each against its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from conformance.core.errors import ScheduleError, VectorsError
from conformance.core.plain_text import is_plain, plain_line
from conformance.core.schedule import Schedule, validate
from conformance.core.user_files import MOST_BYTES, decoded, parse_json, read_bytes, typed_json
from conformance.tools.golden.format import Recorded, parse_golden

_SHOWN = 200  # characters of a name that are shown


class Vectors:
    """A folder of exported vectors, whose files are read when they are first needed.

    Raises:
        VectorsError: the folder has no manifest, or it is malformed, edited or of another format.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = _manifest(folder / MANIFEST)
        self._scenarios: dict[tuple[str, str], ScenarioFile] = {}
        self._goldens: dict[str, Mapping[str, Recorded]] = {}
        self._whole: set[str] = set()

    def family(self, name: str) -> FamilyVectors:
        """The manifest's entry for a family.

        Raises:
            VectorsError: the vectors have no such family.
        """
        if name not in self.manifest.families:
            raise VectorsError(_lacks(self.folder, "family", name, self.manifest.families))
        return self.manifest.families[name]

    def scenario(self, family: str, scenario: str) -> ScenarioFile:
        """One scenario of a family.

        Raises:
            VectorsError: the vectors lack it, or its file is damaged.
        """
        known = self.family(family).scenarios
        if scenario not in known:
            raise VectorsError(_lacks(self.folder, f"scenario of {family}", scenario, known))
        key = (family, scenario)
        if key not in self._scenarios:
            path, data = self._read(family, f"{scenario}.json")
            found: ScenarioFile = _converted(path, data, ScenarioFile)
            self._scenarios[key] = found
            for exported in found.schedules:
                self._check(path, family, exported)
        return self._scenarios[key]

    def schedule(self, family: str, scenario: str, schedule: str) -> Exported:
        """One schedule of a scenario, with the ids of its goldens.

        Raises:
            VectorsError: as ``scenario``, or it has no such schedule.
        """
        known = {e.schedule.name: e for e in self.scenario(family, scenario).schedules}
        if schedule not in known:
            what = f"schedule of {family}/{scenario}"
            raise VectorsError(_lacks(self.folder, what, schedule, known))
        return known[schedule]

    def golden(self, family: str) -> Mapping[str, Recorded]:
        """The goldens of a family by their ids.

        Raises:
            VectorsError: the file is damaged.
            GoldenError: its digest is right, but it is not a golden.
        """
        if family not in self._goldens:
            path, data = self._read(family, GOLDEN)
            golden = parse_golden(decoded(data, str(path), VectorsError), path=str(path))
            self._goldens[family] = {r.request.request_id: r for r in golden.requests}
        return self._goldens[family]

    def _read(self, family: str, name: str) -> tuple[Path, bytes]:
        """Read a file of the family after checking the digests of all its files."""
        place = f"{family}/{name}"
        files = self.family(family).files
        if place not in files:
            raise VectorsError(f"{self.folder / MANIFEST}: field 'files' of {family} lacks {place}")
        if family not in self._whole:
            for path, digest in files.items():
                _verify(self.folder / path, digest)
            self._whole.add(family)
        return self.folder / place, _bytes(self.folder / place)

    def _check(self, path: Path, family: str, exported: Exported) -> None:
        """Check that every request of a schedule has its golden."""
        name = exported.schedule.name
        try:
            validate(exported.schedule)
        except ScheduleError as error:
            raise VectorsError(f"{path}: {error}") from error
        for request in exported.schedule.requests:
            golden = exported.golden.get(request.request_id)
            if golden not in self.golden(family):
                raise VectorsError(
                    f"{path}: schedule {name!r}: request {request.request_id!r} has no golden"
                )


def _lacks(folder: Path, what: str, name: str, known: Any) -> str:
    there = ", ".join(list(known)[:12]) + (", ..." if len(known) > 12 else "")
    return f"{folder} has no {what} {name!r}; it has {there or 'none'}"


def _verify(path: Path, digest: str) -> None:
    if hashlib.sha256(_bytes(path)).hexdigest() != digest:
        raise VectorsError(
            f"{path}: its digest is not the one in {MANIFEST}: the file was edited or damaged; "
            "export the vectors anew"
        )


def _manifest(path: Path) -> Manifest:
    data = _bytes(path)
    raw = parse_json(decoded(data, str(path), VectorsError), str(path), VectorsError)
    number = raw.get("format") if isinstance(raw, dict) else None
    if number != FORMAT:
        raise VectorsError(
            f"{path}: field 'format' is {number!r}, this release reads {FORMAT}: export the "
            "vectors anew with `conformance golden export`"
        )
    manifest: Manifest = _converted(path, data, Manifest)
    if digest_of(manifest) != manifest.digest:
        raise VectorsError(
            f"{path}: field 'digest' does not fit the content: the file was edited or damaged; "
            "export the vectors anew"
        )
    for name, family in manifest.families.items():
        if outside := [file for file in family.files if not _is_inside(file)]:
            raise VectorsError(
                f"{path}: field 'files' of {plain_line(name[:_SHOWN])!r} names "
                f"{plain_line(outside[0][:_SHOWN])!r}, which is no file of the folder"
            )
    return manifest


def _is_inside(file: str) -> bool:
    """Whether it is the name of a file below the folder."""
    parts = file.split("/")
    return all(is_plain(part) and part not in ("", ".", "..") for part in parts)


def _converted(path: Path, data: bytes, kind: Any) -> Any:
    return typed_json(data, kind, str(path), VectorsError)


def _bytes(path: Path) -> bytes:
    return read_bytes(path, VectorsError, most=MOST_BYTES)


# ``manifest.json`` names every other file with its digest. For each family there are a checkpoint
# folder ``model/``, one file for each scenario, and ``golden.json`` (``golden/format.py``), which
# holds each distinct request once.
FORMAT = 1
"""Version of the format of exported vectors; a manifest with another number is refused."""

MANIFEST = "manifest.json"
GOLDEN = "golden.json"
MODEL = "model"


class LeftOut(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is not exported, and why: a scenario, one of its schedules, or one request of that."""

    scenario: str
    reason: str
    schedule: str = ""
    request: str = ""


class FamilyVectors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What there is of one family.

    Attributes:
        vocab_size: number of token ids.
        scenarios: names of those exported, in the order of the ladder.
        left_out: what of the chosen scenarios is not there.
        files: SHA-256 of each file by its path below the folder of vectors.
    """

    vocab_size: int
    scenarios: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    files: dict[str, str]


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that was exported.

    Attributes:
        format: see ``FORMAT``.
        library: whose single streams the goldens are, and whose format the checkpoints have.
        engine: for whose capabilities the scenarios made their schedules.
        dtype: of weights and goldens; a trace of another dtype has other noise and is refused.
        seed: of the weights and the prompts.
        versions: of the library and of what its numbers depend on.
        device: that the goldens were made on.
        families: by name.
        families_left_out: families that were chosen and are not there, with the reason.
        digest: SHA-256 over all of the above.
    """

    format: int
    library: str
    engine: str
    dtype: str
    seed: int
    versions: dict[str, str]
    device: str
    families: dict[str, FamilyVectors]
    families_left_out: dict[str, str]
    digest: str


class Exported(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A schedule, and for each of its requests the id that its golden has in ``golden.json``."""

    schedule: Schedule
    golden: dict[str, str]


class ScenarioFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One scenario of one family. ``summary`` says which ingredient it adds."""

    scenario: str
    summary: str
    schedules: tuple[Exported, ...]


def sealed(manifest: Manifest) -> Manifest:
    """The manifest with its digest filled in."""
    return msgspec.structs.replace(manifest, digest=digest_of(manifest))


def digest_of(manifest: Manifest) -> str:
    """SHA-256 over the manifest without its digest."""
    plain = msgspec.structs.replace(manifest, digest="")
    return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()
