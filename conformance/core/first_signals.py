"""How signals end a command that has begun nothing yet: at once, by exit code 2, with a sentence.

Before this Python itself handles Ctrl-C, by a traceback; so little is imported here.
"""

from __future__ import annotations

# ``signal`` wraps it by enum, which takes a while to import.
import _signal as signal  # type: ignore[import-not-found]
import atexit
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any, NoReturn

INTERRUPTED = 2
"""The exit code of a command that was interrupted."""

ENDING = (signal.SIGINT, signal.SIGTERM)

_STDERR = 2


def leave_at_once() -> None:
    """From now on a signal ends the process. Imports take a moment."""
    for number in ENDING:
        handle(number, leave)
    atexit.register(_end_undisturbed)


def at_exit(function: Callable[[], object]) -> None:
    """Call it when Python ends, undisturbed: a signal would leave the rest of it undone."""
    atexit.register(_undisturbed, function)


def _undisturbed(function: Callable[[], object]) -> None:
    _end_undisturbed()
    function()


def _end_undisturbed() -> None:
    """The work is done, and its exit code stands: Python would now leave signals to the system."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def handle(number: int, handler: Callable[[int, FrameType | None], object]) -> Any:
    """The handler before; it stays where the signal is ignored, as by ``nohup``."""
    before = signal.getsignal(number)
    if before != signal.SIG_IGN:
        signal.signal(number, handler)
    return before


def leave(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    """End the process."""
    try:
        os.write(_STDERR, b"conformance: interrupted\n")
    finally:
        os._exit(INTERRUPTED)
