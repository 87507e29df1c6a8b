"""The ``conformance`` command: finds the command's module, turns our errors into one sentence."""

from __future__ import annotations

import faulthandler
import importlib
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import thread as pools
from io import TextIOWrapper
from typing import Any, ClassVar

import click

import conformance
from conformance.core.errors import ConformanceError

EXIT_USER_ERROR = 2

# They run in a child process: if their one case crashes it, the parent still prints a sentence.
_OF_ONE_CASE = ("show", "explain", "repro")

_COMMANDS = {
    "run": ("conformance.app.cli.run", "Run cases and judge each: the main command."),
    "list": ("conformance.app.cli.listing", "List families, engines, scenarios or plugins."),
    "show": ("conformance.app.cli.show", "Print the whole evidence of one case."),
    "explain": (
        "conformance.app.cli.explain",
        "Take a failing case apart: what, where, like what.",
    ),
    "repro": ("conformance.app.cli.repro", "Write a failing case as a short script."),
    "diff": ("conformance.app.cli.diff", "Compare the results of two runs."),
    "summary": ("conformance.app.cli.summary", "Tell a CI system what result files come to."),
    "report": ("conformance.app.cli.report", "Make pages of results, to look at and to link to."),
    "new-family": ("conformance.app.cli.new_family", "Make a family of a new model and prove it."),
    "calibrate": (
        "conformance.app.cli.calibrate",
        "Measure how loudly families answer to defects.",
    ),
    "smoke": ("conformance.app.cli.smoke", "Tell a broken adapter from a wrong engine."),
    "power": ("conformance.app.cli.power", "Put historic defects in; see which are caught."),
    "soak": ("conformance.app.cli.soak", "Play random schedules on what is right."),
    "explore": (
        "conformance.app.cli.explore",
        "Look for schedules that show a defect; shrink them.",
    ),
    "caches": ("conformance.app.cli.caches", "Test the verbs of every batch cache."),
    "golden": ("conformance.app.cli.golden", "Review what each family gave, and make it anew."),
    "export": ("conformance.app.cli.export", "Write vectors for engines in any language."),
    "judge": ("conformance.app.cli.judge", "Judge the trace of such an engine."),
    "releases": ("conformance.app.cli.releases", "Compare releases: what came, and what went."),
    "bench": ("conformance.app.cli.bench", "Measure coverage, overhead and speed-up of runs."),
}


class LazyGroup(click.Group):
    """Knows its commands by name; imports a command's module when it is called."""

    table: ClassVar[Mapping[str, tuple[str, str]]] = _COMMANDS
    """The module of each command, and its line in the help."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names, in the order in which a user meets them."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of that name, imported."""
        if cmd_name not in self.table:
            return None
        command: click.Command = importlib.import_module(self.table[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.table.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; an error that the user can mend becomes one sentence."""
        try:
            return super().invoke(ctx)
        except ConformanceError as error:
            click.echo(f"conformance: {error}", err=True)
            ctx.exit(EXIT_USER_ERROR)
        except OSError as error:
            failures = importlib.import_module("conformance.core.failures")  # it needs numpy
            if (problem := failures.machine_problem(error)) is None:
                raise
            click.echo(f"conformance: {problem}", err=True)
            ctx.exit(EXIT_USER_ERROR)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(conformance.__version__, prog_name="conformance")
def group() -> None:
    """Prove that batched decoding on MLX gives what single-stream decoding gives.

    Every model family is built tiny, decoded alone and in batches arranged in every way a server
    can arrange them, and judged: exact, a floating-point tie, or wrong.

    \b
    conformance run --family 'qwen3*'        some families, every scenario
    conformance run --scenario staggered     every family, one scenario
    conformance list scenarios               what there is to choose from
    """  # noqa: D301


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the ``conformance`` command. Ends the process."""
    # Processes that are started import nothing from the current folder, which may be a checkpoint.
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] in _OF_ONE_CASE:
        contained = importlib.import_module("conformance.app.cli.contained")  # it needs pytest
        sys.exit(contained.run_in_child(words))
    _run(words)


def main_of_child(parent: int) -> None:
    """Entry point of the child process that runs a command about one case."""
    memory_limit = importlib.import_module("conformance.app.pytest_plugin.memory_limit")
    memory_limit.end_with_parent(parent)
    _run(sys.argv[1:])


def _run(arguments: Sequence[str]) -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may not have every letter
    if sys.stderr is not None:
        faulthandler.enable()  # a crash shows where the process was
    try:
        group.main(args=arguments, prog_name="conformance")
    except SystemExit as end:
        _leave_threads(end.code)
        raise


def _leave_threads(code: object) -> None:
    """End the process at once if a model left threads that would hold it."""
    held = [t for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()]
    if any(thread not in pools._threads_queues for thread in held):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))
