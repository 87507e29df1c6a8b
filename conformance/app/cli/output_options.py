"""The options for a run's output and its JUnit file, and the end of a run."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import click
from rich.console import Console

from conformance.app.cli.options import new_file, stacked
from conformance.report import Outcome, summary
from conformance.report.jsonl import write_lines
from conformance.report.junit import junit_xml

F = TypeVar("F", bound=Callable[..., Any])


class Verbosity(enum.Enum):
    """How much a run prints."""

    QUIET = enum.auto()
    NORMAL = enum.auto()
    VERBOSE = enum.auto()


@dataclass(frozen=True)
class Output:
    """What a run prints and writes at its end.

    Attributes:
        verbosity: how much.
        durations: how many of the slowest cases to list.
        junit: JUnit XML file for the cases; ``None``: write none.
    """

    verbosity: Verbosity = Verbosity.NORMAL
    durations: int = 5
    junit: Path | None = None

    def finish(self, outcome: Outcome, console: Console) -> None:
        """Print the summary and write the file.

        Args:
            outcome: outcome of a run with results.
            console: the matrices keep to its width.
        """
        text = summary(
            outcome,
            width=console.width,
            durations=self.durations,
            brief=self.verbosity is Verbosity.QUIET,
            every_family=self.verbosity is Verbosity.VERBOSE,
        )
        if self.verbosity is not Verbosity.QUIET:
            console.print()
        console.print(text, soft_wrap=True)
        self.write_junit(outcome)

    def write_junit(self, outcome: Outcome) -> None:
        """Write the JUnit file if ``--junit`` was given."""
        if self.junit:
            write_lines(self.junit, junit_xml(outcome).splitlines())


def output_options(function: F) -> F:
    """The options for output; passed to the command as ``output``."""

    @functools.wraps(function)
    def call(
        *args: Any, quiet: bool, verbose: bool, durations: int, junit: Path | None, **more: Any
    ) -> Any:
        if quiet and verbose:
            raise click.UsageError("--quiet and --verbose: choose one of them")
        verbosity = Verbosity.QUIET if quiet else Verbosity.VERBOSE if verbose else Verbosity.NORMAL
        return function(*args, output=Output(verbosity, durations, junit), **more)

    return stacked(
        click.option(
            "-q", "--quiet", is_flag=True, help="Print failures and the last line, nothing else."
        ),
        click.option(
            "-v",
            "--verbose",
            is_flag=True,
            help="Print each case as it ends, and every family in the matrix.",
        ),
        click.option(
            "--durations",
            type=click.IntRange(min=0),
            default=5,
            show_default=True,
            metavar="N",
            help="How many of the slowest cases to list.",
        ),
        new_file("--junit", "junit", "Write the cases as JUnit XML."),
    )(cast("F", call))
