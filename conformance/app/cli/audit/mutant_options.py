"""The options of ``conformance audit mutants``, as one record."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from conformance.app.cli.cluster_option import cluster_option
from conformance.app.cli.numbers import SECONDS, SEED
from conformance.app.cli.options import (
    EXISTING_FILE,
    globs,
    jobs_option,
    json_lines,
    library_path_option,
)

_MOST = 200


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for, field by field as the options' help says."""

    libraries: tuple[str, ...]
    modules: tuple[str, ...]
    functions: tuple[str, ...]
    families: tuple[str, ...]
    sample: int | None
    seed: int
    most: int
    minutes: float | None
    again: tuple[Path, ...]
    resume: bool
    reviewed: Path | None
    unreached: bool
    json_file: Path | None
    sources: tuple[Path, ...]
    jobs: int | None
    cluster: str | None


def _names(option: str, field: str, text: str) -> Any:
    return click.option(option, field, multiple=True, metavar="GLOB", help=text)


_OPTIONS = (
    _names("--library", "libraries", "mlx_lm, mlx_vlm. Default: both."),
    _names(
        "--module",
        "modules",
        "Files to change, as 'mlx_lm/models/cache.py'. Default: those of batching.",
    ),
    _names("--function", "functions", "Only these functions, as 'BatchKVCache.*'. Default: all."),
    globs("family", "Families whose cases are played. Default: one of each kind of cache."),
    click.option(
        "--sample",
        type=click.IntRange(min=1),
        metavar="N",
        help="Draw mutants of each library until N of them are reached. Default: all mutants.",
    ),
    click.option("--seed", type=SEED, default=0, show_default=True, metavar="N"),
    click.option(
        "--most",
        type=click.IntRange(min=1),
        default=_MOST,
        show_default=True,
        metavar="N",
        help="Schedules that are played with one mutant at most.",
    ),
    click.option(
        "--minutes",
        type=SECONDS,
        metavar="M",
        help="Begin no other mutant after so long, recording left aside; what was found is kept.",
    ),
    click.option(
        "--again",
        type=EXISTING_FILE,
        multiple=True,
        metavar="FILE",
        help="Try the survivors of these results again, instead of making mutants.",
    ),
    click.option(
        "--resume",
        is_flag=True,
        help="Keep the results that the file of --json, or its .partial, has; try the others.",
    ),
    click.option(
        "--reviewed",
        type=EXISTING_FILE,
        metavar="FILE",
        help="The file that names equivalent mutants and functions that no case can run, instead "
        "of the project's own.",
    ),
    click.option(
        "--unreached", is_flag=True, help="Try nothing: print the lines that no schedule runs."
    ),
    json_lines(
        "Write one JSON line for each mutant. An interrupted run leaves FILE.partial instead."
    ),
    click.option(
        "--read",
        "sources",
        type=EXISTING_FILE,
        multiple=True,
        metavar="FILE",
        help="Try nothing: report what a run left in this file, whole or partial; may be repeated, "
        "and --json then merges them. Of the same mutant the last one counts.",
    ),
    cluster_option,
    jobs_option(),
    library_path_option,
)


def mutant_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """All options; given to the command as ``wanted``."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        return function(*args, wanted=Wanted(**options))

    made: Any = call
    for option in reversed(_OPTIONS):
        made = option(made)
    decorated: Callable[..., Any] = made
    return decorated
