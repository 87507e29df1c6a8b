"""Last words of workers: where a process was when it died, which no exception can tell."""

from __future__ import annotations

import faulthandler
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

INPUT = "conformance_last_words"
_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)$')
_HELD = pytest.StashKey[Any]()


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


def outlet(config: pytest.Config) -> Any:
    """The open file of ``listen``; ``None`` in processes that do not use one."""
    return config.stash.get(_HELD, None)


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
