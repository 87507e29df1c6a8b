"""The ``conformance`` command: finds the command's module, turns our errors into one sentence."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import click

import conformance
from conformance.errors import ConformanceError

EXIT_USER_ERROR = 2

_COMMANDS = {
    "run": ("conformance.cli.run", "Run cases and judge each: the main command."),
    "list": ("conformance.cli.listing", "List families, engines, scenarios or plugins."),
    "show": ("conformance.cli.show", "Print the whole evidence of one case."),
    "calibrate": ("conformance.cli.calibrate", "Measure how loudly families answer to defects."),
    "power": ("conformance.cli.power", "Put historic defects in; see which are caught."),
    "soak": ("conformance.cli.soak", "Play random schedules on what is right."),
    "caches": ("conformance.cli.caches", "Test the verbs of every batch cache."),
    "bench": ("conformance.cli.bench", "Measure coverage, overhead and speed-up of runs."),
}


class LazyGroup(click.Group):
    """Knows its commands by name; imports a command's module when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names, in the order in which a user meets them."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of that name, imported."""
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = importlib.import_module(_COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; an error that the user can mend becomes one sentence."""
        try:
            return super().invoke(ctx)
        except ConformanceError as error:
            click.echo(f"conformance: {error}", err=True)
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
    group.main(args=None if arguments is None else list(arguments), prog_name="conformance")
