"""A command group whose commands are imported when called, listed by section."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import click

from conformance.core import signals
from conformance.core.errors import ConformanceError
from conformance.core.nearest import did_you_mean


class Lazy(NamedTuple):
    """A command that is not imported yet: its module and its line in the group's help."""

    module: str
    help: str


class LazyGroup(click.Group):
    """Knows its commands by name, and imports a command's module when it is called.

    Args:
        sections: the commands by name, under the section titles of the help.
    """

    def __init__(
        self,
        *args: Any,
        sections: Mapping[str, Mapping[str, Lazy]],
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self._sections = sections
        self._lazy = {name: lazy for each in sections.values() for name, lazy in each.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names in the order of the help."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command with this name, imported."""
        if cmd_name not in self._lazy:
            return None
        with signals.beginning():
            command: click.Command = importlib.import_module(self._lazy[cmd_name].module).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names.

        Raises:
            ConformanceError: there is no such command.
        """
        if args and args[0] not in self._lazy and args[0].isidentifier():
            near = did_you_mean(args[0], self._lazy)
            there = near or f"; there are {', '.join(self._lazy)}"
            raise ConformanceError(f"there is no command {args[0]!r}{there}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands by section, without importing them."""
        width = max(map(len, self._lazy))
        for title, commands in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(n.ljust(width), lazy.help) for n, lazy in commands.items()])
