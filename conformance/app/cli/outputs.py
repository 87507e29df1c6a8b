"""Where commands write: paths are checked before anything runs, and used by one option only."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import click

from conformance.core.errors import ConformanceError
from conformance.core.output_files import is_stream, target_of
from conformance.report.pages.place import check_place

_CLAIMED, _READ = "conformance.outputs", "conformance.inputs"


def writable(path: Path, option: str) -> Path:
    """Make ``path`` absolute and check it; a link stays a link, and its target is written.

    Raises:
        ConformanceError: the folder does not exist or can't be written, or another option of the
            command writes there; a run must not find this out at its end.
    """
    path = path.absolute()
    if is_stream(path) and not path.is_dir():
        if not os.access(path, os.W_OK):
            raise ConformanceError(f"{option}: {path} can't be written")
        return path
    try:
        place = target_of(path)
    except OSError as error:
        raise ConformanceError(f"{option}: {path} can't be written: {error.strerror}") from error
    _check_unread(place, option)
    folder = place.parent
    if not folder.is_dir():
        raise ConformanceError(f"{option}: there is no folder {folder}")
    if not os.access(folder, os.W_OK):
        raise ConformanceError(f"{option}: nothing can be written into the folder {folder}")
    _claim(place, option)
    return path


def places(*wanted: tuple[Path | None, str]) -> list[Path | None]:
    """Apply ``writable`` to each path that is given, with the option that names it."""
    return [writable(path, option) if path else None for path, option in wanted]


def reads(paths: Iterable[Path]) -> None:
    """Note files that the command reads; ``writable`` then refuses them."""
    context = click.get_current_context(silent=True)
    if context:
        context.meta.setdefault(_READ, set()).update(map(os.path.realpath, paths))


def _check_unread(place: Path, option: str) -> None:
    context = click.get_current_context(silent=True)
    if context and str(place) in context.meta.get(_READ, ()):
        raise ConformanceError(f"{option}: {place} is read by this command; name another file")


def report_place(folder: Path, option: str) -> None:
    """Check a folder of pages, which is written as a whole.

    Raises:
        ConformanceError: as in ``writable``, or the folder holds other files.
    """
    check_place(folder)
    _claim(target_of(folder), option, whole=True)


def _claim(place: Path, option: str, *, whole: bool = False) -> None:
    """Note what an option writes; with ``whole``, everything in the folder."""
    context = click.get_current_context(silent=True)
    claimed: dict[Path, tuple[str, bool]] = context.meta.setdefault(_CLAIMED, {}) if context else {}
    for other, (name, all_of_it) in claimed.items():
        inside = (whole and place in other.parents) or (all_of_it and other in place.parents)
        if name != option and (place == other or inside):
            raise ConformanceError(f"{name} and {option} would both write {place}")
    claimed[place] = (option, whole)
