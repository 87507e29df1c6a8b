"""Does an item of a worker in a child process, so that a crash does not affect the worker."""

from __future__ import annotations

import functools
import os
import pickle
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import get_worker

import conformance
from conformance.app.cluster.child import ANSWER, ASKED
from conformance.checks.expectations.loading import OWN
from conformance.core.content_keys import folder_digest
from conformance.core.library_source import versions_of
from conformance.core.processes import describe_exit, run_to_end

_LOOK_SECONDS = 0.2
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
        done = run_to_end(command, apart=False, go_on=wanted_still, every=_LOOK_SECONDS)
        if (folder / ANSWER).is_file():
            return pickle.loads((folder / ANSWER).read_bytes())
        ended = done.why if done.code is None else describe_exit(done.code)
        return Ended(": ".join(filter(None, (ended, done.last_line))))


# Facts that must be the same on all machines of a run: versions, and the code that judges --------

PACKAGES = ("mlx", "mlx-lm", "mlx-vlm", "transformers", "numpy", "pytest")
_SOURCE = "source of mlx-conformance"
_KINDS = {".py", ".toml", ".json", ".jsonl"}
_DIGITS = 12


@functools.cache
def facts() -> dict[str, str]:
    """The facts of this machine; no package that affects numbers is imported."""
    found = {"Python": ".".join(platform.python_version_tuple()[:2])}
    for package in PACKAGES:
        found |= versions_of(package)
    own = Path(conformance.__file__).parent
    return found | {_SOURCE: folder_digest(own, OWN, kinds=_KINDS)[:_DIGITS]}


def difference(mine: Mapping[str, str], others: Mapping[str, str], where: str) -> str:
    """The first difference, as a sentence; empty if there is none."""
    for name in sorted({*mine, *others}):
        here, there = mine.get(name, "none"), others.get(name, "none")
        if here != there:
            return f"worker {where} has {name} {there}, this machine {here}: make them the same"
    return ""
