"""Calls a function in a separate process, which its input may crash.

Native code may end its process where Python would raise: it aborts, overflows the stack, or exceeds
the memory. Here this ends a child process, and the caller gets the reason.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import psutil

from conformance.core.processes import Child, describe_exit, start
from conformance.core.watched_child import end_with_parent

FORKS = sys.platform == "linux"
"""Whether the process is a fork of this one; otherwise Python starts again, which takes seconds."""

_CHILD = (
    "import sys; sys.path[:] = {paths!r}; from conformance.core.guarded_call import serve; "
    "serve({folder!r}, {parent})"
)
# Files of a call: the question, that it began, the answer, and the output.
_ASKED, _BEGUN, _ANSWER, _PRINTED = "asked", "begun", "answer", "printed"
_LOOK_SECONDS = 0.01
_SHOWN = 200  # characters of a process's last output


@dataclass(frozen=True)
class Limits:
    """The limits of a call: seconds, and bytes beyond those that its process begins with."""

    seconds: float
    nbytes: int


class EndedError(Exception):
    """The call returned nothing; the text is the rest of a sentence about it."""


class NotBegunError(Exception):
    """The function or its arguments cannot be passed to another process."""


def guarded_call(function: Callable[..., bytes], *arguments: Any, limits: Limits) -> bytes:
    """Call the function in a separate process, which prints nothing, and return its result.

    Raises:
        EndedError: it did not return.
        NotBegunError: it was not called; does not occur if processes are forked.
    """
    with tempfile.TemporaryDirectory(prefix="conformance-") as name:
        folder = Path(name)
        begin = _forked if FORKS else _started
        child = begin(folder, function, arguments, limits)
        try:
            why = _end_of(child, folder / _BEGUN, limits)
        finally:
            code = child.end()
        if not why and (folder / _ANSWER).is_file():
            return (folder / _ANSWER).read_bytes()
        last = _last_line(folder / _PRINTED)
        if not (folder / _BEGUN).exists():
            raise NotBegunError(last)
        if code == -signal.SIGKILL and not why:  # what the system does where memory is short
            why = "takes more memory than the machine has left, or was killed by a user"
        ended = f"ends its process by {describe_exit(code)}"
        raise EndedError(why or (f"{ended} ({last})" if last else ended))


def _forked(
    folder: Path, function: Callable[..., bytes], arguments: tuple[Any, ...], limits: Limits
) -> Child:
    parent = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks with other threads
        child = os.fork()
    if not child:
        try:
            _leave_parent(folder)
            _call(folder, parent, function, arguments, limits)
        except BaseException:  # noqa: BLE001 - a fork must not go on as its parent
            os.write(2, traceback.format_exc().encode(errors="replace"))
        finally:
            os._exit(1)
    return Child(psutil.Process(child))


def _leave_parent(folder: Path) -> None:
    """In a fork: close all files of the parent."""
    faulthandler.disable()  # it may write into a file of the parent
    nothing = os.open(os.devnull, os.O_RDONLY)
    printed = os.open(folder / _PRINTED, os.O_WRONLY | os.O_CREAT)
    for number, file in ((0, nothing), (1, printed), (2, printed)):
        os.dup2(file, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))


def _started(
    folder: Path, function: Callable[..., bytes], arguments: tuple[Any, ...], limits: Limits
) -> Child:
    try:
        (folder / _ASKED).write_bytes(pickle.dumps((function, arguments, limits)))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise NotBegunError(str(error)) from error
    code = _CHILD.format(paths=sys.path, folder=str(folder), parent=os.getpid())
    with (folder / _PRINTED).open("wb") as printed:
        return start([sys.executable, "-P", "-c", code], output=printed)


def serve(folder: str, parent: int) -> None:
    """In a new Python process: make the call."""
    place = Path(folder)
    _call(place, parent, *pickle.loads((place / _ASKED).read_bytes()))


def _call(
    folder: Path,
    parent: int,
    function: Callable[..., bytes],
    arguments: tuple[Any, ...],
    limits: Limits,
) -> NoReturn:
    """Make the call, write its result to a file, and end."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # it ends with its parent, which gets them, too
    end_with_parent(parent)
    # Native code may keep the interpreter's lock, so that the thread started above has to wait.
    most = int(limits.seconds * (os.cpu_count() or 1) + _used_seconds()) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    (folder / _BEGUN).touch()
    part = folder / f"{_ANSWER}.part"
    part.write_bytes(function(*arguments))
    part.rename(folder / _ANSWER)
    os._exit(0)


def _used_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _end_of(child: Child, begun: Path, limits: Limits) -> str:
    """Wait for the end of the child; return the limit that it exceeded, if any."""
    while not child.over(_LOOK_SECONDS):
        if not child.limited and begun.exists():  # imports do not count
            child.limit(limits.seconds, limits.nbytes, more=True)
        if child.excess:
            return child.excess
    return ""


def _last_line(printed: Path) -> str:
    text = printed.read_text(encoding="utf-8", errors="replace") if printed.exists() else ""
    # Rust's additions to a panic message are not a reason.
    said = [line.strip() for line in text.splitlines() if not line.startswith("note: ")]
    said = [line for line in said if line]
    return said[-1][:_SHOWN] if said else ""
