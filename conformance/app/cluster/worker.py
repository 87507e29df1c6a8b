"""Does an item of a worker in a child process, so that a crash does not affect the worker."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from distributed import get_worker

from conformance.app.cluster.child import ANSWER, ASKED
from conformance.app.cluster.facts import difference, facts
from conformance.core.processes import describe_exit, end_tree

_LOOK_SECONDS = 0.2
_PRINTED = "printed"
_AT_WORK = {"executing", "long-running"}


class Differs(Exception):  # noqa: N818
    """This worker's versions or code differ from the client's; the text is a sentence."""


@dataclass(frozen=True)
class Ended:
    """The child process ended without a result; ``how`` it ended, in words."""

    how: str


def do(work: Callable[[Any], Any], item: Any, wanted: Mapping[str, str]) -> Any:
    """The result of ``work`` on the item, or ``Ended``; runs on a worker.

    Raises:
        Differs: this worker does not match the client.
    """
    worker = get_worker()
    if problem := difference(wanted, facts(), worker.address):
        raise Differs(problem)
    key = worker.get_current_task()

    def wanted_still() -> bool:
        task = worker.state.tasks.get(key)
        return task is not None and task.state in _AT_WORK

    return do_apart(work, item, wanted_still)


def do_apart(work: Callable[[Any], Any], item: Any, wanted_still: Callable[[], bool]) -> Any:
    """The result of ``work`` on the item in a child process, or ``Ended``."""
    with tempfile.TemporaryDirectory(prefix="conformance-part-") as name:
        folder = Path(name)
        (folder / ASKED).write_bytes(pickle.dumps((work, item)))
        command = [sys.executable, "-m", "conformance.app.cluster.child", name, str(os.getpid())]
        with (folder / _PRINTED).open("wb") as printed:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=printed, stderr=printed
            )
        try:
            while child.poll() is None and wanted_still():
                time.sleep(_LOOK_SECONDS)
        finally:
            if child.poll() is None:
                end_tree(psutil.Process(child.pid))
            code = child.wait()
        if (folder / ANSWER).is_file():
            return pickle.loads((folder / ANSWER).read_bytes())
        text = (folder / _PRINTED).read_text(encoding="utf-8", errors="replace").strip()
        said = text.splitlines()[-1] if text else ""
        return Ended(": ".join(filter(None, (describe_exit(code), said))))
