"""Runs the ``conformance`` command in the process of the tests: what it imports is there already.

For what is not about processes: a command that ends its process, or leaves something in it that
later tests would see, has one of its own, by ``forked``.
"""

import contextlib
import os
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from click.testing import CliRunner

from conformance.app.cli.main import group
from conformance.app.pytest_plugin import command as pytest_command


def call_command(words, folder, environment):
    """As ``subprocess.run`` of the command in a folder, with these variables alone."""
    words, there = [str(word) for word in words], set(sys.modules)
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(folder):
        for name in os.environ.keys() - environment.keys():
            patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["conformance", *words])
        patch.setattr(pytest_command, "_is_command", lambda: False)  # the outer pytest is one
        done = CliRunner().invoke(group, words, prog_name="conformance")
        for name in sys.modules.keys() - there:  # another folder may have a module of this name
            if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(folder):
                del sys.modules[name]
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return CompletedProcess(words, done.exit_code, done.stdout, done.stderr)
