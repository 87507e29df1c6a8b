"""Runs a command in a child process; its parent waits for it and returns the exit code.

Code of a model, a library or a plugin can end its process at any time, with any exit code. So the
child records the command's exit code when the command is over, and the parent, in which no such
code has run, does not accept 0 without this record. For a shell both are one job; signals that
reach the parent alone are passed on.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import shlex
import signal
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from conformance.core.first_signals import ENDING, handle

INCOMPLETE = 70
"""The exit code of a command whose process ended with 0 before the command was over."""

FORKS = sys.platform == "linux"
"""Whether the child is a fork; otherwise Python starts again, if system libraries forbid forks."""

_GIVEN = "CONFORMANCE_WATCHED"
_LOOK_SECONDS = 0.25
_MEANWHILE_SECONDS = 0.05  # in which a signal to both has reached the child, too
_SIGNALLED = 128  # plus the signal's number, as shells report it
_STDERR = 2
_SET_CHILD_SUBREAPER = 36  # prctl(2)


class End:
    """In the child: reports that the command is over."""

    def __init__(self, mark: int) -> None:
        self._mark = mark

    def note(self, code: int) -> None:
        """The command is over, with this exit code; later code does not change it."""
        os.write(self._mark, f"{code}\n".encode())


def go_on_in_child(command: Sequence[str], name: str, *, early: int) -> End:
    """Returns in a child process only; this process ends with the child.

    Args:
        command: starts the program again, if the child is not a fork.
        name: name of the command, for a sentence about its end.
        early: the exit code for mistakes in its options, which need no further sentence.
    """
    if _GIVEN in os.environ:
        return _begun(*map(int, os.environ.pop(_GIVEN).split()))
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    _adopt()
    parent, mark, seen = os.getpid(), _pipe(), _pipe()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    ours = parent, mark[1], seen[1]
    child = _fork() if FORKS and threading.active_count() == 1 else _start(command, ours)
    if not child:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return _begun(*ours)
    watch = _Watch(child, name, early, mark[0], seen[0])
    for number in ENDING:
        handle(number, watch.forward)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return watch.wait()


def _pipe() -> tuple[int, int]:
    """A pipe that does not take the place of a closed standard stream, which others write to."""
    ends = os.pipe()
    there, here = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _STDERR + 1) for end in ends)
    for end in ends:
        os.close(end)
    return there, here


def _adopt() -> None:
    """Adopt processes whose parents end, so that none is left at the end."""
    if FORKS:
        importlib.import_module("ctypes").CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)


def _end_adopted() -> None:
    """Kill processes that the child started and left; some systems do not list children."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    with contextlib.suppress(OSError):
        while left := children.read_text(encoding="ascii").split():
            for pid in map(int, left):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of native threads
        return os.fork()


def _start(command: Sequence[str], ours: tuple[int, int, int]) -> int:
    subprocess = importlib.import_module("subprocess")
    given = {**os.environ, _GIVEN: " ".join(map(str, ours))}
    started: int = subprocess.Popen(command, env=given, pass_fds=ours[1:]).pid
    return started


def _begun(parent: int, mark: int, seen: int) -> End:
    """In the child: end with the parent, which receives its signals and its end."""
    os.set_inheritable(mark, False)
    os.set_inheritable(seen, False)
    os.set_blocking(seen, False)
    signal.set_wakeup_fd(seen, warn_on_full_buffer=False)
    end_with_parent(parent)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    return End(mark)


class _Watch:
    """In the parent: passes signals on, waits, and ends with the command's exit code."""

    def __init__(self, child: int, name: str, early: int, mark: int, seen: int) -> None:
        self._child, self._name, self._early = child, name, early
        self._mark, self._seen = mark, seen
        self._signalled = False
        for pipe in (mark, seen):
            os.set_blocking(pipe, False)

    def forward(self, number: int, frame: Any) -> None:  # noqa: ARG002
        """Pass a signal on, unless the child has received it already, as from a terminal."""
        self._signalled = True
        time.sleep(_MEANWHILE_SECONDS)
        if number not in _read(self._seen):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, number)

    def wait(self) -> NoReturn:
        """Wait for the end of the child."""
        code = 1
        try:
            self._limit_memory()
            status = os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1])
            code = self._code(status, _read(self._mark).decode().split())
            _end_adopted()
        finally:
            os._exit(code)

    def _limit_memory(self) -> None:
        """From now on the child is killed once it exceeds its memory limit, whatever it does."""
        try:
            memory_limit = importlib.import_module("conformance.core.memory_limit")
        except ImportError:
            return  # the child reports what is missing
        limit = memory_limit.limit_of_command(shlex.split(self._name))
        text = (
            f"conformance: `{self._name}` takes more than {limit / 1e9:.3g} GB of memory, and is "
            "ended\n"
        )
        watch = memory_limit.MemoryWatch(limit, lambda _: _write(text))
        watch.add(self._name, self._child)

    def _code(self, status: int, noted: list[str]) -> int:
        """The exit code; prints a sentence if the process ended before the command."""
        code = int(noted[-1]) if noted else 0
        shown = status if status >= 0 else _SIGNALLED - status
        if noted and status in (0, code):
            return code
        known = status == self._early or (self._signalled and status != 0)
        if noted or not known:
            self._say(status, over=bool(noted))
        return code or shown or INCOMPLETE

    def _say(self, status: int, *, over: bool) -> None:
        describe_exit = importlib.import_module("conformance.core.processes").describe_exit
        ended = "crashed" if status < 0 else "ended"
        when = "after its work" if over else "before its work was done"
        text = (
            f"conformance: `{self._name}` {ended} {when} ({describe_exit(status)}): code of a "
            "model or a library can do that, or the system ended it; where cases are run in worker "
            "processes (--jobs 2, -n 2), that costs its own case only\n"
        )
        _write(text)


def _write(text: str) -> None:
    os.write(_STDERR, text.encode(errors="backslashreplace"))


def _read(pipe: int) -> bytes:
    """The text written into a pipe so far."""
    with contextlib.suppress(BlockingIOError):
        return os.read(pipe, 2**16)
    return b""


def end_with_parent(parent: int) -> None:
    """End this process and its child processes once process ``parent`` has ended in any way."""

    def wait() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_SECONDS)
        processes = importlib.import_module("conformance.core.processes")
        processes.end_tree(importlib.import_module("psutil").Process())

    threading.Thread(target=wait, name="conformance-parent", daemon=True).start()
