"""Commands about one case run in a child process: a case that crashes it ends in a sentence."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence

import psutil

from conformance.app.cli.printing import say
from conformance.core.processes import describe_exit, end_tree

SENTENCE = (
    "conformance: `conformance {command}` crashed ({exit}): native code of a library can do that, "
    "or the system ended it; `conformance run` runs cases in worker processes, where a crash costs "
    "its own case only"
)

# The child has this one's terminal, so a debugger works there.
_CHILD = "from conformance.app.cli.main import main_of_child; main_of_child({parent})"
_INTERRUPTED = 1  # as click exits


def run_in_child(arguments: Sequence[str]) -> int:
    """Run the command in a child process; its exit code, in a shell's way for a signal."""
    child = start_child(arguments)
    process = psutil.Process(child.pid)
    try:
        code = child.wait()
    except KeyboardInterrupt:
        end_tree(process)  # it had a moment to end by itself
        return _INTERRUPTED
    if code >= 0:
        return code
    command = shlex.join(arguments)
    say(SENTENCE.format(command=command, exit=describe_exit(code)), err=True)
    return 128 - code


def start_child(arguments: Sequence[str], *, silent: bool = False) -> subprocess.Popen[bytes]:
    """The command in a child process, which ends with this one; ``silent`` prints nothing."""
    command = [sys.executable, "-c", _CHILD.format(parent=os.getpid()), *arguments]
    quiet = subprocess.DEVNULL if silent else None
    return subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
