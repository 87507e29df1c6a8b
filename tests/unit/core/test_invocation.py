"""The command line and the date of a run."""

import re
import sys
from datetime import UTC, datetime

import click
import pytest

from conformance.app.cli.main import group
from conformance.core.invocation import (
    FLAGS,
    TAKEN,
    Invocation,
    command_about,
    this_invocation,
)


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (
            ["/usr/bin/conformance", "run", "--family", "qwen3*"],
            "conformance run --family 'qwen3*'",
        ),
        (["/site/pytest/__main__.py", "-n", "2"], "python -m pytest -n 2"),
        (["/site/conformance/__main__.py", "run"], "python -m conformance run"),
        (["-c", "1"], "python -c ... 1"),
        (["my tests.py", "a b"], "'my tests.py' 'a b'"),
    ],
)
def test_a_command_is_as_a_shell_takes_it(arguments, command):
    assert this_invocation(arguments).command == command


def test_it_is_of_this_process_and_of_now(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/bin/conformance", "run"])
    found = this_invocation()
    assert found.command == "conformance run"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", found.started)
    assert abs((datetime.now(UTC) - datetime.fromisoformat(found.started)).total_seconds()) < 60


OPTIONS = (
    *("-p", "my.hooks", "--family-file", "my model.json", "--library-path", "/src"),
    *("--expectations", "known", "--no-mends"),
)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (
            "show",
            "-p my.hooks --family-file 'my model.json' --library-path /src --expectations known "
            "--no-mends",
        ),
        ("explain", "-p my.hooks --family-file 'my model.json' --library-path /src"),
        (
            "repro",
            "-p my.hooks --family-file 'my model.json' --library-path /src --expectations known",
        ),
    ],
)
def test_a_command_about_a_case_has_the_options_that_it_takes(command, expected):
    found = command_about(command, "e/f/s/d/0", OPTIONS, "--json", "x")
    assert found == f"conformance {command} {expected} e/f/s/d/0 --json x"


@pytest.mark.parametrize("option", ["--url", "--model"])
def test_a_command_that_cannot_do_the_case_is_not_named(option):
    options = (*OPTIONS, option, "x", "--remote")
    assert command_about("explain", "e/f/s/d/0", options) == ""
    assert command_about("show", "e/f/s/d/0", options).endswith(f"{option} x --remote e/f/s/d/0")
    wanted = "conformance show defects -p my.hooks --expectations known an-id"
    assert command_about("show defects", "an-id", options, needs=False) == wanted


def test_commands_take_the_options_that_are_left_to_them():
    assert set(group.list_commands(click.Context(group))) >= {name.split()[0] for name in TAKEN}
    for command, options in (*TAKEN.items(), ("show", (*FLAGS, "--url", "--model", "-p"))):
        declared = {o for p in command_of(command).params for o in (*p.opts, *p.secondary_opts)}
        assert set(options) <= declared, command
    flags = {o for p in command_of("show").params if getattr(p, "is_flag", False) for o in p.opts}
    assert flags >= FLAGS


def command_of(name):
    return group.get_command(click.Context(group), name.split()[0])


def test_a_date_is_readable():
    assert Invocation("2026-11-22T14:10:28Z", "x").when == "2026-11-22 14:10 UTC"
