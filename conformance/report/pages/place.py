"""Where a report goes: a folder that is written whole or stays as it was."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from conformance.core.errors import ReportError
from conformance.core.output_files import target_of

MARK = "report.json"
"""Marks a folder as a report, which may be replaced, and names its kind for programs."""


@contextlib.contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A new folder to write to, which replaces ``folder`` if nothing fails.

    Raises:
        ReportError: there is something else at that path, or it cannot be written.
    """
    folder = _target(folder)  # a link keeps its target
    check_place(folder)
    try:
        with _beside(folder) as new:
            yield new
            _replace(folder, new)
    except OSError as error:
        raise ReportError(f"{folder}: cannot write a report there: {error.strerror}") from error


def check_place(folder: Path) -> None:
    """Check that a report may be written there, before hours are spent on its contents.

    Raises:
        ReportError: its parent is not a folder or is read-only, or it exists and is not a report of
            this project.
    """
    folder = _target(folder)
    if not folder.parent.is_dir():
        raise ReportError(f"{folder}: cannot write a report there: no folder {folder.parent}")
    if not os.access(folder.parent, os.W_OK):
        raise ReportError(f"{folder}: cannot write a report there: {folder.parent} is read-only")
    try:
        ours = not folder.exists() or (
            folder.is_dir() and ((folder / MARK).is_file() or not any(folder.iterdir()))
        )
    except OSError as error:
        raise ReportError(f"{folder}: cannot write a report there: {error.strerror}") from error
    if not ours:
        raise ReportError(
            f"{folder}: exists and is not a report of this project; name another folder or "
            "remove it"
        )


def _target(folder: Path) -> Path:
    try:
        return target_of(folder)
    except OSError as error:
        raise ReportError(f"{folder}: cannot write a report there: {error.strerror}") from error


@contextlib.contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """A new folder next to it, on the same disk; removed afterwards unless it was moved."""
    made = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        made.chmod(0o755)  # readable for a web server of another user
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _replace(folder: Path, new: Path) -> None:
    """Replace ``folder`` by ``new``; restore it if that fails."""
    if not folder.exists():
        new.rename(folder)
        return
    with _beside(folder) as attic:
        folder.rename(attic / "old")
        try:
            new.rename(folder)
        except OSError:
            (attic / "old").rename(folder)
            raise
