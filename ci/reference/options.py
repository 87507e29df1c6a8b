"""The command line's and pytest's options, as their parsers define them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import pytest

from conformance.app.cli.main import group
from conformance.app.pytest_plugin import pytest_addoption

WIDTH = 100


def commands() -> list[dict[str, str]]:
    """Name and help text of each command and nested command, in order."""
    context = click.Context(
        group, info_name="conformance", terminal_width=100, max_content_width=100
    )
    return list(_commands(group, context))


def _commands(parent: click.Group, context: click.Context) -> Iterator[dict[str, str]]:
    for name in parent.list_commands(context):
        command = parent.get_command(context, name)
        assert command is not None
        own = click.Context(command, info_name=name, parent=context, terminal_width=WIDTH)
        yield {"name": own.command_path, "help": command.get_help(own)}
        if isinstance(command, click.Group):
            yield from _commands(command, own)


class _Recorder:
    """Replaces pytest's parser and its groups, and records what is added."""

    def __init__(self) -> None:
        self.options: list[dict[str, Any]] = []

    def getgroup(self, *_: str, **__: str) -> _Recorder:
        return self

    def addoption(self, name: str, **how: Any) -> None:
        self.options.append({"name": name, "ini": "", "metavar": how.get("metavar") or "", **how})

    def addini(self, name: str, *_: Any, **__: Any) -> None:
        for option in self.options:
            if option["name"].lstrip("-").replace("-", "_") == name:
                option["ini"] = name


def pytest_options() -> list[dict[str, Any]]:
    """Each option with its ini setting."""
    recorder = _Recorder()
    parser: Any = recorder
    pytest_addoption(parser)
    return [option for option in recorder.options if option["help"] != pytest.HIDDEN_PARAM]
