"""Options that several commands share."""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from conformance.app.cli.outputs import writable
from conformance.app.run_settings import OPTIONS, Kind, Option
from conformance.core import library_paths
from conformance.core.devices import chosen
from conformance.core.errors import ConformanceError
from conformance.core.names import TIERS
from conformance.run.selection import DTYPES

_NUMBER = re.compile("[0-9]{1,9}")

F = TypeVar("F", bound=Callable[..., Any])

MOST_JOBS = 1024
SEED = click.IntRange(min=0, max=2**32 - 1)

_DAYS = 10


class Finite(click.FloatRange):
    """A number within a range; refuses ``inf`` and ``nan``, which Python would accept."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number."""
        found: float = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!s} is no finite number", param, ctx)
        return found


SECONDS = Finite(min=0, max=_DAYS * 86400)
MINUTES = Finite(min=0, max=_DAYS * 1440, min_open=True)
GIGABYTES = Finite(min=0, max=1_000_000)
FACTOR = Finite(min=1, max=1_000_000_000, min_open=True)

EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
EXISTING_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


_TYPES: dict[Kind, click.ParamType[Any]] = {
    Kind.DTYPE: click.Choice(DTYPES),
    Kind.SEED: SEED,
    Kind.TIER: click.Choice(TIERS),
    Kind.SECONDS: SECONDS,
    Kind.GIGABYTES: GIGABYTES,
    Kind.PATH: click.Path(path_type=Path),
    Kind.FILE: EXISTING_FILE,
    Kind.FOLDER: EXISTING_FOLDER,
    Kind.NEW_FILE: click.Path(dir_okay=False, path_type=Path),
    Kind.NEW_FOLDER: click.Path(file_okay=False, path_type=Path),
}


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
        if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= MOST_JOBS:
            self.fail(f"{text!r} is neither 'auto' nor a number of 1 to {MOST_JOBS}", param, ctx)
        return int(text)


JOBS = _Jobs()


_PLURALS = {"engine": "engines", "family": "families", "scenario": "scenarios", "fault": "faults"}


def globs(kind: str, text: str) -> Callable[[F], F]:
    """``--engine``, ``--family``, ``--scenario`` or ``--fault``: patterns of names."""
    return click.option(f"--{kind}", _PLURALS[kind], multiple=True, metavar="GLOB", help=text)


def new_file(option: str, name: str, text: str) -> Callable[[F], F]:
    """An option that names a file to write, which is checked before the command begins."""

    def checked(_: click.Context, __: click.Parameter, value: Path | None) -> Path | None:
        return writable(value, option) if value else None

    kind = click.Path(dir_okay=False, path_type=Path)
    return click.option(option, name, type=kind, metavar="FILE", callback=checked, help=text)


def json_lines(text: str) -> Callable[[F], F]:
    """``--json FILE``: the file to write results to."""
    return new_file("--json", "target", text)


def earlier_results(text: str = "") -> Callable[[F], F]:
    """``--read FILE``: the results of earlier runs, to report instead of running anything."""
    return click.option(
        "--read",
        "sources",
        type=EXISTING_FILE,
        multiple=True,
        metavar="FILE",
        help="Only report the results of an earlier run from this file, whole or partial; may be "
        f"repeated, and --json then merges the files. {text}",
    )


def power_files_option(text: str) -> Callable[[F], F]:
    """``--power FILE``: the output of ``conformance audit power --json``."""
    return click.option(
        "--power",
        "power_files",
        type=EXISTING_FILE,
        multiple=True,
        metavar="FILE",
        help=f"{text}; may be repeated.",
    )


def jobs_option(text: str = "Worker processes. 'auto': one for each core.") -> Callable[[F], F]:
    """``--jobs``: the number of processes that share the work."""
    return click.option(
        "--jobs", type=JOBS, default="auto", show_default=True, metavar="auto|N", help=text
    )


def cores() -> int:
    """How many processes can run at the same time on this machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def stacked(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Several decorators as one; the first one's option comes first in the help text."""

    def decorate(function: F) -> F:
        return functools.reduce(lambda made, option: option(made), reversed(options), function)

    return decorate


def settings_options(*names: str) -> Callable[[F], F]:
    """The options of a run with these names, passed to the command by their ``key``."""
    known = {option.name: option for option in OPTIONS}
    return stacked(*(_declared(known[name]) for name in names))


def _declared(option: Option) -> Callable[[F], F]:
    more: dict[str, Any] = {"is_flag": True}
    if option.kind is not Kind.FLAG:
        kind = _TYPES.get(option.kind)
        metavar = None if isinstance(kind, click.Choice) else option.metavar
        more = {"type": kind, "metavar": metavar, "multiple": bool(option.plural)}
    if option.default is not None:
        more |= {"default": option.default, "show_default": True}
    if option.name == "devices":
        more["callback"] = lambda ctx, param, value: chosen(value) if value else ()  # noqa: ARG005
    names = (*([option.short] if option.short else []), f"--{option.name}", option.key)
    return click.option(*names, help=option.text, **more)


family_files_option = settings_options("family-file")
plugins_option = settings_options("plugin")
case_options = settings_options("plugin", "family-file", "expectations", "no-expectations")


def library_path_option(function: F) -> F:
    """``--library-path``: a checkout of mlx-lm or mlx-vlm in place of the installed package."""
    return click.option(
        library_paths.OPTION,
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="DIR",
        expose_value=False,
        # No effect here: ``main`` has applied it before the library was imported.
        callback=lambda ctx, param, value: library_paths.use(value),  # noqa: ARG005
        help="Use mlx-lm or mlx-vlm from this checkout, the folder with mlx_lm/ or mlx_vlm/. "
        "May be repeated.",
    )(function)


def checkpoint_options(function: F) -> F:
    """The options for a real checkpoint; without ``--model`` the others are refused."""

    @functools.wraps(function)
    def call(*args: Any, model: Path | None, **more: Any) -> Any:
        others = ("prompts", "cache_dir", "golden", "trust_remote_code", "force")
        if model is None and any(more.get(name) for name in others):
            raise ConformanceError(
                "--prompts, --cache-dir, --golden, --trust-remote-code and --force are about "
                "--model"
            )
        return function(*args, model=model, **more)

    return settings_options("model", "prompts", "cache-dir", "trust-remote-code", "force")(
        cast("F", call)
    )
