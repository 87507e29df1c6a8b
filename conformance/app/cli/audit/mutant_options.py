"""The options of ``conformance audit mutants``, as one record."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from conformance.app.cli.cluster_option import cluster_option
from conformance.app.cli.options import (
    EXISTING_FILE,
    SECONDS,
    SEED,
    globs,
    jobs_option,
    json_lines,
    library_path_option,
)

_MOST = 200


@dataclass(frozen=True)
class Wanted:
    """The command line's options, described by their help texts."""

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
    globs("family", "Families whose cases are run. Default: one for each kind of cache."),
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
        help="The most schedules to run with one mutant.",
    ),
    click.option(
        "--minutes",
        type=SECONDS,
        metavar="M",
        help="Start no mutant after this time, not counting recording; results so far are kept.",
    ),
    click.option(
        "--again",
        type=EXISTING_FILE,
        multiple=True,
        metavar="FILE",
        help="Retry the survivors in these results, instead of making mutants.",
    ),
    click.option(
        "--resume",
        is_flag=True,
        help="Keep the results in the file of --json, or in its .partial; try the other mutants.",
    ),
    click.option(
        "--reviewed",
        type=EXISTING_FILE,
        metavar="FILE",
        help="File that names equivalent mutants and functions that no case can run, instead "
        "of the project's own.",
    ),
    click.option("--unreached", is_flag=True, help="Only print the lines that no schedule runs."),
    json_lines(
        "Write one JSON line for each mutant. An interrupted run leaves FILE.partial instead."
    ),
    click.option(
        "--read",
        "sources",
        type=EXISTING_FILE,
        multiple=True,
        metavar="FILE",
        help="Only report the results of an earlier run from this file, whole or partial; may be "
        "repeated, and --json then merges the files. For equal mutants the last result counts.",
    ),
    cluster_option,
    jobs_option(),
    library_path_option,
)


def mutant_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """All options; passed to the command as ``wanted``."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        return function(*args, wanted=Wanted(**options))

    made: Any = call
    for option in reversed(_OPTIONS):
        made = option(made)
    decorated: Callable[..., Any] = made
    return decorated
