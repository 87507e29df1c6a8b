"""Options that several commands share."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from conformance.app.cli.numbers import MOST_JOBS
from conformance.app.pytest_plugin.options import TIMEOUT_SECONDS, Settings
from conformance.core import library_paths
from conformance.core.errors import ConformanceError
from conformance.tools.checkpoints.given import Given

_NUMBER = re.compile("[0-9]{1,9}")

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
        if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= MOST_JOBS:
            self.fail(f"{text!r} is neither 'auto' nor a number of 1 to {MOST_JOBS}", param, ctx)
        return int(text)


JOBS = _Jobs()


_PLURALS = {"engine": "engines", "family": "families", "scenario": "scenarios", "fault": "faults"}


def globs(kind: str, text: str) -> Callable[[F], F]:
    """``--engine``, ``--family``, ``--scenario`` or ``--fault``: patterns of names."""
    return click.option(f"--{kind}", _PLURALS[kind], multiple=True, metavar="GLOB", help=text)


def json_lines(text: str) -> Callable[[F], F]:
    """``--json FILE``: the file to write results to."""
    kind = click.Path(dir_okay=False, path_type=Path)
    return click.option("--json", "json_file", type=kind, metavar="FILE", help=text)


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


def family_files_option(function: F) -> F:
    """``--family-file``: families of the user's own."""
    return click.option(
        "--family-file",
        "family_files",
        type=EXISTING_FILE,
        multiple=True,
        metavar="FILE",
        help="A family of your own: a tiny config.json with a 'conformance' section. "
        "May be repeated.",
    )(function)


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


def plugins_option(function: F) -> F:
    """``-p``: modules with hooks that are not installed as plugins."""
    return click.option(
        "-p",
        "--plugin",
        "plugins",
        multiple=True,
        metavar="MODULE",
        help="A module with hooks, in this folder or installed. May be repeated.",
    )(function)


def mends_option(function: F) -> F:
    """``--no-mends``: run cases with known defects only as released."""
    return click.option(
        "--no-mends",
        is_flag=True,
        help="Do not rerun cases with known defects with those defects mended.",
    )(function)


def case_options(function: F) -> F:
    """Options for running and judging a case: own families, plugins, the expectations."""
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
            help="Folder of expectations (known defects), instead of the project's own.",
        ),
        family_files_option,
        plugins_option,
    ):
        function = option(function)
    return function


def checkpoint_options(function: F) -> F:
    """The options for a real checkpoint; passed to the command as ``checkpoint``."""

    @functools.wraps(function)
    def call(
        *args: Any,
        model: Path | None,
        prompts: Path | None,
        cache_dir: Path | None,
        trust_remote_code: bool,
        force: bool,
        golden: Path | None = None,
        **more: Any,
    ) -> Any:
        given = None
        if model is not None:
            given = Given(
                model.absolute(),
                prompts.absolute() if prompts else None,
                cache_dir.absolute() if cache_dir else None,
                trusted=trust_remote_code,
                force=force,
                golden=golden.absolute() if golden else None,
            )
        elif prompts or cache_dir or trust_remote_code or force or golden:
            raise ConformanceError(
                "--prompts, --cache-dir, --golden, --trust-remote-code and --force are about "
                "--model"
            )
        return function(*args, checkpoint=given, **more)

    made: Any = call
    for option in (
        click.option(
            "--force", is_flag=True, help="Run the checkpoint even if it exceeds the free memory."
        ),
        click.option(
            "--trust-remote-code",
            is_flag=True,
            help="Allow running Python files in the checkpoint's folder.",
        ),
        click.option(
            "--cache-dir",
            type=click.Path(file_okay=False, path_type=Path),
            metavar="DIR",
            help="Folder that keeps single streams of checkpoints between runs. Default: "
            "mlx-conformance in the user's cache.",
        ),
        click.option(
            "--prompts",
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE",
            help="File of texts to cut prompts from, one per line. Default: a dozen built-in ones.",
        ),
        click.option(
            "--model",
            type=click.Path(path_type=Path),
            metavar="FOLDER",
            help="Run the cases on a real checkpoint: config.json, safetensors, tokenizer. Default "
            "dtype: the checkpoint's own.",
        ),
    ):
        made = option(made)
    decorated: F = made
    return decorated


def case_settings(
    *,
    family_files: tuple[Path, ...],
    expectations: Path | None,
    no_expectations: bool,
    no_mends: bool = False,
    **more: Any,
) -> Settings:
    """Settings from the shared options; a setting without an option keeps its default."""
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
        mends=not no_mends,
    )
