"""Last words of workers: where a process was when it died, which no exception can tell."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

SPOILT = pytest.StashKey[bool]()
"""Set on a worker's config: what ran there left something behind."""
INPUT = "conformance_last_words"
_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)$')
_HELD = pytest.StashKey[Any]()
_RETIRED = "retired"
# A worker's pipe is closed before the worker is gone; a dump of its memory may be written first.
_EXIT_SECONDS = 5.0


class LastWords:
    """In the reporting process: one file for each worker, into which it writes as it dies."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="conformance-")

    def assign(self, node: Any) -> None:
        """Tell a worker that is about to start which file is its own."""
        node.workerinput[INPUT] = str(self._path(node.gateway.id))

    def of(self, worker: str) -> str:
        """What the dead worker said, in one line: the fault and the last Python frame."""
        try:
            text = self._path(worker).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return condense(text)

    def retired(self, worker: str) -> bool:
        """Whether a worker ended by itself after a case, to be replaced by a fresh one."""
        return self.of(worker) == _RETIRED

    def close(self) -> None:
        """Remove the files."""
        self._folder.cleanup()

    def _path(self, worker: str) -> Path:
        return Path(self._folder.name) / f"{worker}.txt"


def listen(config: pytest.Config) -> None:
    """In a worker: let the interpreter write to our file, not to the terminal, when it dies."""
    path = getattr(config, "workerinput", {}).get(INPUT)
    if path:
        config.stash[_HELD] = file = Path(path).open("w", encoding="utf-8")  # noqa: SIM115
        faulthandler.enable(file=file)
        config.pluginmanager.register(Retiring(config))


def outlet(config: pytest.Config) -> Any:
    """The open file of ``listen``; in a process without one, pytest's copy of the real stderr."""
    return config.stash.get(_HELD, None) or config.stash.get(fault_handler_stderr_fd_key, None)


def cry(config: pytest.Config, text: str) -> None:
    """Write to the real stderr, which pytest has taken away: the process is about to end."""
    file = config.stash.get(fault_handler_stderr_fd_key, None)
    if file is not None:
        os.write(file, text.encode(errors="replace"))


class Retiring:
    """In a worker: ends it after a case that spoilt it; the rest of its cases go to a fresh one."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self) -> None:
        """The report is sent. Threads that were left behind would keep a usual end from coming."""
        if self._config.stash.get(SPOILT, False):
            file = self._config.stash[_HELD]
            file.write(_RETIRED)
            file.flush()
            os._exit(0)


def process_of(node: Any) -> Any:
    """The process of a worker, a ``Popen``; ``None`` where it is not one of this machine."""
    return getattr(getattr(node.gateway, "_io", None), "popen", None)


def exit_of(node: Any) -> str:
    """How the process of a dead worker ended: ``signal SIGSEGV``, or ``exit status 3``.

    Empty where xdist does not say which process it was, as for one on another machine.
    """
    process = process_of(node)
    try:
        code = process.wait(_EXIT_SECONDS) if process is not None else None
    except subprocess.TimeoutExpired:
        return ""
    if code is None:
        return ""
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def condense(text: str) -> str:
    """One line of a faulthandler dump: its heading, and the frame that was running.

    Frames are listed from the most recent call; other threads come before the current one. Empty
    if the dump is.
    """
    lines = text.splitlines()
    if not lines:
        return ""
    heading = lines[0].removeprefix("Fatal Python error: ").rstrip("!")
    starts = [i for i, line in enumerate(lines) if line.startswith("Current thread")]
    threads = [i for i, line in enumerate(lines) if line.startswith("Thread ")]
    # A dump for a timeout has no current thread: the main thread is its last.
    begin = (starts or threads or [0])[-1]
    frame = next((found for line in lines[begin:] if (found := _FRAME.match(line))), None)
    if frame is None:
        return heading
    parts = Path(frame["file"]).parts[-3:]
    return f"{heading} in {'/'.join(parts)}:{frame['line']}, {frame['function']}"
