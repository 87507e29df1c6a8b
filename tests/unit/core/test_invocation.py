"""The command line and the date of a run."""

import re
import sys
from datetime import UTC, datetime

import pytest

from conformance.core.invocation import Invocation, this_invocation


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


def test_a_date_is_readable():
    assert Invocation("2026-11-22T14:10:28Z", "x").when == "2026-11-22 14:10 UTC"
