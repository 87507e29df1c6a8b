"""Lets a parent process watch the command ``pytest`` when it runs the suite."""

from __future__ import annotations

import shlex
import sys
from types import FrameType

import pytest

from conformance.app.pytest_plugin.options import END
from conformance.core import watched_child

_COMMANDS = ("console_main", "_console_main")


def go_on_in_child(config: pytest.Config) -> None:
    """Continue in a child process if this one is pytest's own, before conftest files are imported.

    A process that calls ``pytest.main`` has more to do than pytest. A debugger may not follow a
    child process.
    """
    if not _is_command() or "pydevd" in sys.modules:
        return
    name = shlex.join(["pytest", *config.invocation_params.args])
    anew = [sys.executable, *sys.orig_argv[1:]]
    config.stash[END] = watched_child.go_on_in_child(
        anew, name, early=int(pytest.ExitCode.USAGE_ERROR)
    )


def _is_command() -> bool:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        module, function = frame.f_globals.get("__name__"), frame.f_code.co_name
        if module == "_pytest.config" and function in _COMMANDS:
            return True
        frame = frame.f_back
    return False
