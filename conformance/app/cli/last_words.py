"""What to say of a command whose process was ended, which can no longer say it itself."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence

SENTENCE = (
    "conformance: the process died while it ran `conformance {command}`; a library can do that, as "
    "by a write past the end of an array, or somebody ended it; `conformance run` plays cases in "
    "processes that may die, and calls that a crash"
)

_LEFT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def stand_by(arguments: Sequence[str]) -> Callable[[], None]:
    """Let a small process wait for the end of this one, and tell it if it came at once.

    It is forked before anything else is imported, while there is one thread. This process keeps
    its id, its terminal and its signals.

    Args:
        arguments: of the command, for the sentence.

    Returns:
        What to call before an end that needs no words.
    """
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(theirs)
            _listen(ours, arguments)
        finally:
            os._exit(0)  # whatever happened: the command is the other one's
    os.close(ours)

    def well() -> None:
        with contextlib.suppress(OSError):  # somebody ended that one
            os.write(theirs, b".")
            os.close(theirs)
            os.waitpid(child, 0)

    return well


def _listen(pipe: int, arguments: Sequence[str]) -> None:
    for number in _LEFT:  # what ends the command is not for this one
        signal.signal(number, signal.SIG_IGN)
    if not os.read(pipe, 1):
        words = SENTENCE.format(command=shlex.join(arguments))
        os.write(sys.stderr.fileno(), f"{words}\n".encode(errors="backslashreplace"))
