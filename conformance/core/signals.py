"""How signals end a command: SIGTERM like SIGINT, once or repeatedly, at any time; exit code 2.

The first raises ``KeyboardInterrupt`` in the command, which finishes and reports its results. A
second one ends the command's processes, for which it may be waiting; a later one ends the command.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

from conformance.core.first_signals import ENDING, handle, leave

_PATIENCE_SECONDS = 3.0
_AGAIN_SECONDS = 0.01


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Context in which the first signal raises ``KeyboardInterrupt``, and no other does."""
    handler = _Handler()
    before = {number: handle(number, handler) for number in ENDING}
    try:
        yield
    finally:
        _put_back(before)


@contextlib.contextmanager
def beginning() -> Iterator[None]:
    """Context in which a signal ends the process; for a command's imports, before work begins.

    An exception could be lost there: within ``__set_name__``, for example, it becomes another one.
    """
    before = {number: handle(number, leave) for number in ENDING}
    try:
        yield
    finally:
        _put_back(before)


def _put_back(before: Mapping[int, Any]) -> None:
    for number, was in before.items():
        signal.signal(number, was or signal.SIG_DFL)


def came_of(error: BaseException) -> bool:
    """Whether an interruption became this error, since Python replaces it in some places."""
    chain: BaseException | None = error
    while chain is not None:
        if isinstance(chain, KeyboardInterrupt):
            return True
        chain = chain.__cause__ or chain.__context__
    return False


class EscapedError(Exception):
    """Foreign code raised an exception that would end this process; that is the cause."""


@contextlib.contextmanager
def foreign_code() -> Iterator[None]:
    """Context around foreign code, which may raise anything.

    Raises:
        Exception: the code's own, or an ``EscapedError`` in place of a non-``Exception``, such as a
            ``KeyboardInterrupt`` without a signal.
    """
    came: list[int] = []
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in ENDING}
    for number, handler in before.items():
        if callable(handler):
            signal.signal(number, functools.partial(_noting, came, handler))
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        if came:
            raise
        raise EscapedError from error
    finally:
        _put_back({number: handler for number, handler in before.items() if callable(handler)})


def _noting(came: list[int], handler: Callable[..., Any], number: int, frame: Any) -> None:
    """Note the signal, and handle it as before."""
    came.append(number)
    handler(number, frame)


class _Handler:
    """Counts the signals received."""

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
            leave(number, frame)


def _may_raise(frame: FrameType | None) -> bool:
    """Whether an exception raised now would be seen: Python drops exceptions in some callbacks.

    Also false during the import of a module, however deep: extensions that make classes there, such
    as pydantic's for openai, print the exception and continue.
    """
    if frame is not None and frame.f_code.co_name == "__del__":
        return False
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return False
        frame = frame.f_back
    return True


def end_children() -> None:
    """End all processes that this one started, and their child processes.

    Except ``multiprocessing``'s resource tracker: it ends with this process, and a replacement
    would complain about each semaphore that it does not know.
    """
    psutil = importlib.import_module("psutil")  # not needed by a command that ends normally
    counts = getattr(sys.modules.get("multiprocessing.resource_tracker"), "_resource_tracker", None)
    spared = getattr(counts, "_pid", None)
    for child in psutil.Process().children(recursive=True):
        if child.pid == spared:
            continue
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
