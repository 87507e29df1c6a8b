"""A command with many options, whose help lists those used most first and the others by purpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

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
