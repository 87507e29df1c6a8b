"""``conformance golden``: what each family's single stream gave, as files that people review."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import click

from conformance.app.cli.choices import EXISTING_FILE, JOBS
from conformance.app.cli.main import LazyGroup
from conformance.core.family import Family
from conformance.core.library import Library
from conformance.run.registry import Registry, select
from conformance.run.selection import DEFAULT_ENGINES

F = TypeVar("F", bound=Callable[..., Any])


class _Commands(LazyGroup):
    table: ClassVar = {
        "update": ("conformance.app.cli.golden_update", "Make goldens anew: stage, show, accept."),
        "check": ("conformance.app.cli.golden_check", "Hold goldens against the library of today."),
        "diff": ("conformance.app.cli.golden_diff", "Say what differs between two goldens."),
        "verify": (
            "conformance.app.cli.golden_verify",
            "Hold families against another implementation.",
        ),
    }


@click.group("golden", cls=_Commands)
def command() -> None:
    """What each family's single stream gave, as files that people review.

    A golden is written from the oracle alone, and only after it was held against a second one.
    """


def golden_options(function: F) -> F:
    """Which families are meant, and where their goldens lie."""
    for option in (
        click.option(
            "--family-file",
            "family_files",
            type=EXISTING_FILE,
            multiple=True,
            metavar="FILE",
            help="A family of your own. May be repeated.",
        ),
        click.option(
            "--jobs",
            type=JOBS,
            default="auto",
            show_default=True,
            metavar="auto|N",
            help="Worker processes. 'auto': one for each core.",
        ),
        click.option(
            "--golden",
            "folder",
            type=click.Path(file_okay=False, path_type=Path),
            metavar="DIR",
            help="Folder of goldens. Default: golden/ here, then that of the project.",
        ),
        click.option(
            "--engine",
            "engines",
            multiple=True,
            metavar="GLOB",
            help="Engines whose libraries are meant, and that are compared; may be repeated. "
            "Default: mlx_lm and mlx_vlm.",
        ),
        click.option(
            "--family",
            "families",
            multiple=True,
            metavar="GLOB",
            help="Families that are meant; may be repeated. Default: all.",
        ),
    ):
        function = option(function)
    return function


def chosen_engines(registry: Registry, patterns: tuple[str, ...]) -> tuple[str, ...]:
    """The engines that are meant.

    Raises:
        ConformanceError: a glob matches nothing.
    """
    return select(registry.engines, patterns or DEFAULT_ENGINES, what="engine")


def chosen_families(
    registry: Registry, engines: tuple[str, ...], patterns: tuple[str, ...]
) -> list[tuple[Library, Family]]:
    """The families of these engines' libraries that are meant, with their library.

    Raises:
        ConformanceError: a glob matches nothing.
    """
    libraries = {registry.engines[name].library for name in engines}
    names = sorted({name for library, name in registry.families if library in libraries})
    chosen = set(select(names, patterns, what="family"))
    return [
        (registry.libraries[library], family)
        for (library, name), family in registry.families.items()
        if library in libraries and name in chosen
    ]
