"""Options that the commands of ``conformance golden`` share: families and folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from conformance.app.cli.options import family_files_option, globs, jobs_option, stacked
from conformance.core.unavailable import sentences
from conformance.run.registry import Registry
from conformance.run.selection import DEFAULT_ENGINES

F = TypeVar("F", bound=Callable[..., Any])

FOLDER_HELP = "Folder of goldens. Default: golden/ here, then that of the project."


def folder_option(text: str = FOLDER_HELP) -> Callable[[F], F]:
    """``--golden``: the folder of goldens."""
    kind = click.Path(file_okay=False, path_type=Path)
    return click.option("--golden", "folder", type=kind, metavar="DIR", help=text)


def golden_options(function: F) -> F:
    """Options for the families and the folder of their goldens."""
    return stacked(
        globs("family", "Families to check; may be repeated. Default: all."),
        globs(
            "engine",
            "Check the families of these engines' libraries, with these engines; may be repeated. "
            "Default: mlx_lm and mlx_vlm.",
        ),
        folder_option(),
        jobs_option(),
        family_files_option,
    )(function)


def chosen_engines(registry: Registry, patterns: tuple[str, ...]) -> tuple[str, ...]:
    """The selected engines.

    Raises:
        ConformanceError: a glob matches nothing.
    """
    return registry.select_engines(patterns or registry.usual_engines(DEFAULT_ENGINES))


def lacking(registry: Registry, patterns: tuple[str, ...]) -> list[str]:
    """One sentence for each part that these engines lack."""
    return sentences(registry.lacking(patterns or DEFAULT_ENGINES))
