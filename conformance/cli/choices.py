"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from conformance.errors import ConformanceError
from conformance.pytest_plugin.options import TIMEOUT_SECONDS, Settings

F = TypeVar("F", bound=Callable[..., Any])

EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
EXISTING_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


class _Jobs(click.ParamType[int | None]):
    """``auto`` or a number of worker processes of at least 1."""

    name = "jobs"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        """``None`` for ``auto``."""
        if value is None or value == "auto":
            return None
        text = str(value)
        if not text.isdecimal() or int(text) < 1:
            self.fail(f"{text!r} is neither 'auto' nor a number of at least 1", param, ctx)
        return int(text)


JOBS = _Jobs()


def cores() -> int:
    """How many processes can run at once here."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def writable(path: Path, option: str) -> Path:
    """``path`` made absolute.

    Raises:
        ConformanceError: its folder does not exist; a run must not find that out at its end.
    """
    if not path.absolute().parent.is_dir():
        raise ConformanceError(f"{option}: there is no folder {path.absolute().parent}")
    return path.absolute()


def case_options(function: F) -> F:
    """What decides how a case is run and judged: ``--family-file`` and the expectations."""
    for option in (
        click.option(
            "--no-expectations",
            is_flag=True,
            help="Judge as if no defect were known: every verdict but exact and tie fails.",
        ),
        click.option(
            "--expectations",
            type=EXISTING_FOLDER,
            metavar="DIR",
            help="Folder of the files that name known defects, instead of the project's own.",
        ),
        click.option(
            "--family-file",
            "family_files",
            type=EXISTING_FILE,
            multiple=True,
            metavar="FILE",
            help="A family of your own: a tiny config.json with a 'conformance' section. "
            "May be repeated.",
        ),
    ):
        function = option(function)
    return function


def case_settings(
    *,
    family_files: tuple[Path, ...],
    expectations: Path | None,
    no_expectations: bool,
    **more: Any,
) -> Settings:
    """Settings from the shared options; what a command has no option for is left at its default."""
    unset: dict[str, Any] = {
        "engines": (),
        "families": (),
        "scenarios": (),
        "dtypes": (),
        "seeds": (),
        "json": None,
        "timeout": TIMEOUT_SECONDS,
    }
    return Settings(
        **{**unset, **more},
        family_files=tuple(path.absolute() for path in family_files),
        expectations=expectations.absolute() if expectations else None,
        use_expectations=not no_expectations,
    )
