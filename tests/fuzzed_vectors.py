"""Exported vectors to fuzz: what was changed gets the digest that fits it, and all is read."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec

from conformance.core.schedule import Arrival, Removal, Request, Schedule, Stage, Trigger
from conformance.tools.golden.format import Golden, Provenance, Recorded, to_text
from conformance.tools.vectors.reading import (
    FORMAT,
    GOLDEN,
    MANIFEST,
    Exported,
    FamilyVectors,
    LeftOut,
    Manifest,
    ScenarioFile,
    Vectors,
    sealed,
)

FAMILY, SCENARIO = "toy", "ragged"
SCHEDULES_FILE, GOLDEN_FILE = f"{FAMILY}/{SCENARIO}.json", f"{FAMILY}/{GOLDEN}"


def golden() -> list[Any]:
    """A golden of two requests."""
    top = tuple(((5 + step, -0.5), (6, -1.5)) for step in range(2))
    made = tuple(
        Recorded(Request(name, (1, 2, 3), 2), (5, 6), (1.0, 1.0), (1e-5, 1e-5), top)
        for name in "ab"
    )
    found = Golden("toys", FAMILY, "float32", 0, Provenance("r", "w", {}, "abacus", "s"), made)
    return [json.loads(to_text(found))]


def schedules() -> list[Any]:
    """A scenario with one schedule."""
    first, second = (Request(name, (1, 2, 3), 2) for name in "ab")
    removal = Removal(("b",), Trigger("b", Stage.DECODE, 1))
    arrivals = (Arrival((first,)), Arrival((second,), Trigger("a", Stage.DECODE, 1)))
    exported = Exported(Schedule("s", arrivals, removals=(removal,)), {"a": "a", "b": "b"})
    return [msgspec.to_builtins(ScenarioFile(SCENARIO, "padding", (exported,)))]


def manifest() -> list[Any]:
    """The manifest of both, by what ``beside`` writes."""
    files = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in _contents().items()}
    family = FamilyVectors(16, (SCENARIO,), (LeftOut("x", "why", request="r"),), files)
    made = Manifest(
        FORMAT,
        *("toys", "toy", "float32", 0, {"v": "1"}, "cpu"),
        families={FAMILY: family},
        families_left_out={"other": "why"},
        digest="",
    )
    return [msgspec.to_builtins(sealed(made))]


def beside(folder: Path) -> None:
    """Write all files of right vectors."""
    (folder / FAMILY).mkdir(exist_ok=True)
    for name, text in _contents().items():
        (folder / name).write_text(text)
    (folder / MANIFEST).write_text(json.dumps(manifest()[0]))


def _contents() -> dict[str, str]:
    return {SCHEDULES_FILE: json.dumps(schedules()[0]), GOLDEN_FILE: json.dumps(golden()[0])}


def with_digest(documents: list[Any]) -> list[Any]:
    """The manifest with the digest that fits it, if it is one."""
    try:
        return [msgspec.to_builtins(sealed(msgspec.convert(documents[0], Manifest)))]
    except (msgspec.ValidationError, OverflowError, RecursionError, UnicodeEncodeError):
        return documents


def read(path: Path) -> None:
    """Read all that the manifest names."""
    vectors = Vectors(path.parent)
    for name, family in vectors.manifest.families.items():
        vectors.golden(name)
        for scenario in family.scenarios:
            for exported in vectors.scenario(name, scenario).schedules:
                vectors.schedule(name, scenario, exported.schedule.name)


def read_sealed(path: Path) -> None:
    """The same of a file that a manifest is made for."""
    folder = path.parents[1]
    document = manifest()[0]
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    document["families"][FAMILY]["files"][path.relative_to(folder).as_posix()] = digest
    (folder / MANIFEST).write_text(json.dumps(with_digest([document])[0]))
    read(folder / MANIFEST)
