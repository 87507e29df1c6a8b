"""Commands in groups, each imported when it is called; help listed by section and by purpose."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import click

from conformance.core import signals
from conformance.core.errors import ConformanceError
from conformance.core.names import did_you_mean


class LazyGroup(click.Group):
    """Knows its commands by name, and imports a command's module when it is called.

    Args:
        package: the package with a module for each command, of the command's name.
        sections: the lines of the help by command, under the titles of their sections.
    """

    def __init__(
        self,
        *args: Any,
        package: str,
        sections: Mapping[str, Mapping[str, str]],
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self._sections = sections
        self._package = package
        self._names = [name for commands in sections.values() for name in commands]

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names in the order of the help."""
        return list(self._names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command with this name, imported."""
        if cmd_name not in self._names:
            return None
        with signals.beginning():
            command: click.Command = importlib.import_module(f"{self._package}.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names.

        Raises:
            ConformanceError: there is no such command.
        """
        if args and args[0] not in self._names and args[0].isidentifier():
            near = did_you_mean(args[0], self._names)
            there = near or f"; there are {', '.join(self._names)}"
            raise ConformanceError(f"there is no command {args[0]!r}{there}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands by section, without importing them."""
        width = max(map(len, self._names))
        for title, commands in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(n.ljust(width), line) for n, line in commands.items()])


FIRST = "Options used most"
OTHERS = "Other options"


class GroupedCommand(click.Command):
    """Lists its options under titles.

    Args:
        groups: the names of the options, such as ``--family``, by title, in the order of the help.
            Options that no group names come last.
    """

    def __init__(self, *args: Any, groups: Mapping[str, Sequence[str]], **more: Any) -> None:
        super().__init__(*args, **more)
        self.groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, each under the title of its group."""
        records = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                records[max(param.opts, key=len)] = record
        for title, names in self.groups.items():
            with formatter.section(title):
                formatter.write_dl([records.pop(name) for name in names])
        with formatter.section(OTHERS):
            formatter.write_dl(list(records.values()))
