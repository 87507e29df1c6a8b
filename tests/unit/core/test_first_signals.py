"""Before a command has begun, a signal ends it by a sentence."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import conformance


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_before_the_command_has_begun_it_exits_by_2(number):
    code = (
        "import os, sys; from conformance.core.first_signals import leave_at_once; "
        f"leave_at_once(); os.kill(os.getpid(), {int(number)}); import time; time.sleep(9)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "conformance: interrupted\n")


def test_little_is_imported_before_ctrl_c_is_handled():
    """What is imported takes time, and until it is over Ctrl-C is a traceback of Python's own."""
    code = (
        "import sys; sys.path.insert(0, {path!r}); import os, importlib; "
        "needed = set(sys.modules); import conformance.__main__; "
        "print(*sorted(set(sys.modules) - needed))"
    )
    root = str(Path(conformance.__file__).parents[1])
    command = [sys.executable, "-I", "-S", "-c", code.format(path=root)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        "__future__",
        "atexit",  # is built in
        "conformance",
        "conformance.__main__",
        "conformance.core",
        "conformance.core.first_signals",
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_imports_is_a_sentence(number):
    """The command gets it from a module that it imports before it has begun."""
    code = (
        "import os, sys; from importlib.abc import MetaPathFinder\n"
        "class Finder(MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        name == 'conformance.app.cli.main' and os.kill(os.getpid(), {int(number)})\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from conformance.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "conformance: interrupted\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_after_the_work_does_not_change_its_exit_code(number):
    """When Python ends, what is collected last gets a signal that nobody handles any more."""
    code = (
        "import os, sys; from conformance.core.first_signals import leave_at_once\n"
        "class Late:\n"
        f"    def __del__(self, kill=os.kill, own=os.getpid()): kill(own, {int(number)})\n"
        "leave_at_once(); sys.late = Late(); sys.exit(1)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_is_done_at_the_end_is_done_whole(number):
    code = (
        "import os; from conformance.core.first_signals import at_exit, leave_at_once\n"
        "leave_at_once()\n"
        "def end():\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    print('whole')\n"
        "at_exit(end)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "whole\n", "")
