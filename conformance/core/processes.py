"""Runs processes: to their end, within limits, ended with all their children.

Some processes are run otherwise. A command's own child (``watched_child.py``) starts before psutil
is imported. The processes of ``parallel.py``, of mutants, of xdist and of a distributed group are
workers that exchange messages. A server's watchdog, which runs without this package, ends it.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

# ``struct rusage_info_v0`` of macOS, <sys/resource.h>: 16 bytes, then numbers of 8 bytes each.
_RUSAGE_BYTES, _FOOTPRINT_AT = 96, 16 + 7 * 8
_LOOK_SECONDS = 0.1


class Child:
    """A running child process, and its limits; without any at first.

    Args:
        process: a ``psutil.Popen``, or the process of a fork.
    """

    def __init__(self, process: psutil.Process) -> None:
        self.process = process
        self._seconds = self._deadline = math.inf
        self._more = self._most = math.inf

    def limit(
        self, seconds: float | None, nbytes: int | None = None, *, more: bool = False
    ) -> None:
        """Set its limits; ``None`` for no limit.

        Args:
            seconds: how long it may run, from now on.
            nbytes: how much memory it and not its children may take.
            more: the bytes count beyond those that it takes now.
        """
        if seconds is not None:
            self._seconds, self._deadline = seconds, time.monotonic() + seconds
        if nbytes is not None:
            self._more, self._most = nbytes, nbytes + (memory_of(self.process) if more else 0)

    @property
    def limited(self) -> bool:
        """Whether it has a limit of time."""
        return self._deadline < math.inf

    @property
    def excess(self) -> str:
        """The limit that it exceeds, in words; empty if none."""
        if time.monotonic() > self._deadline:
            return f"takes more than {self._seconds:.3g} seconds"
        if self._most < math.inf and memory_of(self.process) > self._most:
            return f"takes more than {self._more / 1e9:.3g} GB of memory"
        return ""

    def over(self, seconds: float = 0.0) -> bool:
        """Whether it has ended, after waiting up to ``seconds``."""
        with contextlib.suppress(psutil.TimeoutExpired):
            self.process.wait(seconds)
            return True
        return False

    def end(self) -> int:
        """End it with all processes that it started; return its exit code."""
        end_tree(self.process)
        return self.process.wait() or 0


def start(
    command: Sequence[str],
    *,
    output: IO[bytes] | int = subprocess.DEVNULL,
    errors: IO[bytes] | int = subprocess.STDOUT,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Child:
    """Start a command, which reads nothing.

    Args:
        output: the file of its output; by default it prints nothing.
        errors: the file of its standard error; by default the same.
        environment: its variables; by default those of this process.
        folder: its working directory; by default that of this process.

    Raises:
        OSError: there is no such program, or it cannot be run.
    """
    nothing = subprocess.DEVNULL
    return Child(
        psutil.Popen(
            command, stdin=nothing, stdout=output, stderr=errors, env=environment, cwd=folder
        )
    )


@dataclass(frozen=True)
class Done:
    """A process that ended.

    Attributes:
        code: its exit code, negative for a signal; ``None`` if it could not be started.
        output: what it printed.
        errors: what it printed to its standard error, if that was kept apart.
        why: why this process ended it, or could not start it; else empty.
    """

    code: int | None
    output: str = ""
    errors: str = ""
    why: str = ""

    @property
    def good(self) -> bool:
        """Whether it succeeded."""
        return self.code == 0 and not self.why

    @property
    def last_line(self) -> str:
        """The last line that it printed, to its standard error if there is any."""
        lines = [line.strip() for line in (self.errors or self.output).splitlines()]
        return next((line for line in reversed(lines) if line), "")


def run_to_end(
    command: Sequence[str],
    *,
    seconds: float | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    apart: bool = True,
    go_on: Callable[[], bool] = lambda: True,
    every: float = _LOOK_SECONDS,
) -> Done:
    """Run a command until it ends; if it is ended before, so are all processes that it started.

    Args:
        command, environment, folder: as in ``start``.
        seconds: the time after which it is ended.
        apart: keep its standard error apart from its output.
        go_on: called every ``every`` seconds; if false, the command is ended.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            child = start(
                command,
                output=output,
                errors=errors if apart else subprocess.STDOUT,
                environment=environment,
                folder=folder,
            )
        except OSError as error:
            return Done(None, why=f"cannot be started: {error.strerror}")
        why = ""
        try:
            child.limit(seconds)
            while not why and not child.over(every):
                why = child.excess or ("" if go_on() else "is no longer needed")
        finally:
            code = child.end()
        return Done(code, _text(output), _text(errors), why)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace").replace("\r\n", "\n")


def git(folder: Path, *words: str) -> str | None:
    """The output of git in a folder; ``None`` if it failed or is not installed."""
    # A hook of another repository sets variables that name that repository.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = run_to_end(["git", "-C", str(folder), *words], environment=kept)
    return done.output if done.good else None


def memory_of(process: psutil.Process) -> int:
    """The memory of a process in bytes: resident memory, 0 once it is gone.

    On macOS, the physical footprint, which includes Metal's buffers; resident memory, psutil's only
    number for another process, does not (ml-explore/mlx#3896).
    """
    if not process.is_running():  # its number may be another's by now
        return 0
    if sys.platform == "darwin":
        return _footprint(process.pid, ctypes.CDLL("/usr/lib/libSystem.B.dylib"))
    try:
        return process.memory_info().rss
    except psutil.Error:
        return 0


def _footprint(pid: int, system: ctypes.CDLL) -> int:
    buffer = ctypes.create_string_buffer(_RUSAGE_BYTES)
    if system.proc_pid_rusage(pid, 0, buffer) != 0:
        return 0
    return int.from_bytes(buffer.raw[_FOOTPRINT_AT : _FOOTPRINT_AT + 8], sys.byteorder)


def end_tree(process: psutil.Process, number: int = signal.SIGKILL) -> None:
    """End all child processes of a process, then send it a signal; it may be this process."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in process.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        process.send_signal(number)


def end_trees(pids: Collection[int]) -> None:
    """End these child processes and their children; the system is asked only once."""
    ending = set(pids)
    for process in psutil.Process().children(recursive=True):  # parents come first
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.pid in ending or process.ppid() in ending:
                ending.add(process.pid)
                process.kill()


def describe_exit(code: int) -> str:
    """A process's exit code in words; it is negative for a signal."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
