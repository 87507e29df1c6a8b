"""How signals end a command: SIGTERM as SIGINT, one or several, at any moment; exit code 2.

The first raises ``KeyboardInterrupt`` in the command, which ends what it has begun and reports what
it found. A second ends its processes, for which it may be waiting; a later one ends the command.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

INTERRUPTED = 2
"""The exit code of a command that was interrupted."""

_ENDING = (signal.SIGINT, signal.SIGTERM)
_PATIENCE_SECONDS = 3.0
_AGAIN_SECONDS = 0.01
_STDERR = 2


def leave_at_once() -> None:
    """From now on a signal ends the process: nothing was begun yet. Imports take a moment."""
    for number in _ENDING:
        _handle(number, _leave)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Within it, the first signal raises ``KeyboardInterrupt``, and no other does."""
    handler = _Handler()
    before = {number: _handle(number, handler) for number in _ENDING}
    try:
        yield
    finally:
        for number, was in before.items():
            signal.signal(number, was or signal.SIG_DFL)


def _handle(number: int, handler: Callable[[int, FrameType | None], object]) -> Any:
    """The handler before; it stays where the signal is ignored, as by ``nohup``."""
    before = signal.getsignal(number)
    if before is not signal.SIG_IGN:
        signal.signal(number, handler)
    return before


class _Handler:
    """Counts the signals that came."""

    def __init__(self) -> None:
        self._first: float | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not _may_raise(frame):
            again = threading.Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), number))
            again.daemon = True
            again.start()
            return
        now = time.monotonic()
        if self._first is None:
            self._first = now
            raise KeyboardInterrupt
        end_children()
        if now - self._first > _PATIENCE_SECONDS:
            _leave(number, frame)


def _may_raise(frame: FrameType | None) -> bool:
    """Whether an exception raised now would be seen: Python drops those of such callbacks."""
    code = frame.f_code if frame else None
    return code is None or not (
        code.co_name == "__del__" or code.co_filename.startswith("<frozen importlib")
    )


def end_children() -> None:
    """End all processes that this one started, and theirs."""
    psutil = importlib.import_module("psutil")  # not needed by a command that ends well
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


def _leave(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    with contextlib.suppress(OSError):
        os.write(_STDERR, b"conformance: interrupted\n")
    os._exit(INTERRUPTED)
