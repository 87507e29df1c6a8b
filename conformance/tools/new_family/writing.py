"""Writes a family's file atomically."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

import msgspec

from conformance.core.errors import AdoptionError
from conformance.core.family import SECTION, Family
from conformance.core.user_files import read_object


def family_text(family: Family) -> str:
    """The text of a family's file: its config, then the family's facts."""
    section = msgspec.to_builtins(family.facts)
    section = {"library": family.facts.library, "module": family.facts.module, **section}
    return json.dumps({**family.config, SECTION: section}, indent=2, ensure_ascii=False) + "\n"


def write_family(family: Family, folder: Path) -> Path:
    """Write ``<name>.json`` to a folder; return its path."""
    path = folder / f"{family.name}.json"
    path.write_text(family_text(family), encoding="utf-8")
    return path


def workplace(target: Path, *, force: bool = False) -> Path:
    """A temporary folder next to ``target``, so that files can be renamed into place.

    Args:
        force: an existing family file may be replaced.

    Raises:
        AdoptionError: nothing can be written there, or ``target`` exists already.
    """
    if target.exists() and not force:
        raise AdoptionError(
            f"{target}: exists already; name another file with --out, or replace it with --force"
        )
    if target.exists() and SECTION not in read_object(target, AdoptionError):
        raise AdoptionError(f"{target}: is no family file, so --force does not replace it")
    try:
        return Path(tempfile.mkdtemp(prefix=".new-family-", dir=target.parent))
    except OSError as error:
        raise AdoptionError(f"{target}: cannot write there: {error.strerror}") from error


def publish(folder: Path, target: Path, others: dict[Path, Path]) -> None:
    """Move the files in ``folder`` to their places, the family's file last.

    Args:
        others: further files of the family, and the destination of each.

    Raises:
        AdoptionError: a file can't be written; all changes are then undone.
    """
    before = {place: place.read_bytes() for place in others.values() if place.is_file()}
    placed: list[Path] = []
    try:
        for made, place in others.items():
            os.replace(made, place)  # noqa: PTH105 - the one call whose atomicity is documented
            placed.append(place)
        os.replace(folder / target.name, target)  # noqa: PTH105
    except OSError as error:
        for place in placed:
            if place in before:
                place.write_bytes(before[place])
            else:
                place.unlink(missing_ok=True)
        raise AdoptionError(f"{target}: cannot write there: {error.strerror}") from error


def remove(folder: Path) -> None:
    """Remove the temporary folder."""
    shutil.rmtree(folder, ignore_errors=True)
