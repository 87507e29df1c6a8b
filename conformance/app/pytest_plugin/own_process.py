"""Plays a case in a process of its own, where a known defect ends the process that plays it.

So what would end a worker is a verdict, and the worker can play the case with the defect mended.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType

import psutil
import pytest

from conformance.app.pytest_plugin.memory_limit import end_tree, end_with_parent
from conformance.app.pytest_plugin.missing_results import crashed
from conformance.app.pytest_plugin.options import Settings
from conformance.app.pytest_plugin.setup import Setup, make_setup
from conformance.app.pytest_plugin.worker_crashes import condense, describe_exit
from conformance.core.errors import ConformanceError
from conformance.core.verdict import CaseId, CaseResult, decode, encode
from conformance.run.hosting import brings_hooks, load_plugins

_CHILD = "from conformance.app.pytest_plugin.own_process import play; play({folder!r}, {parent})"
# In the folder of a case: what is asked, the answer, and what the process left of itself.
_ASKED, _BEGUN, _ANSWER, _CRASH, _OUTPUT = "asked", "begun", "answer", "crash", "output"


def ends_process(setup: Setup, case: CaseId) -> bool:
    """Whether a known defect ends the process that plays the case as released."""
    if setup.expectations is None or setup.settings.checkpoint is not None:
        return False
    versions = setup.registry.libraries[setup.library_of(case)].versions()
    return any(entry.ends(case, versions) for entry in setup.expectations.defects)


def played_apart(setup: Setup, case: CaseId, config: pytest.Config) -> CaseResult:
    """The case as released, from a process of its own; a crash if that ended.

    Raises:
        ConformanceError: the process ended before it could begin with the case.
    """
    started = time.perf_counter()
    plugins = [p for p in config.pluginmanager.get_plugins() if brings_hooks(p)]
    names = [plugin.__name__ for plugin in plugins if isinstance(plugin, ModuleType)]
    with tempfile.TemporaryDirectory(prefix="conformance-") as name:
        folder = Path(name)
        (folder / _ASKED).write_bytes(pickle.dumps((setup.settings, names, str(case))))
        code = _run(folder)
        if (folder / _ANSWER).is_file():
            return decode((folder / _ANSWER).read_text(encoding="utf-8"))
        if not (folder / _BEGUN).is_file():
            lines = (folder / _OUTPUT).read_text(encoding="utf-8", errors="replace").splitlines()
            why = lines[-1] if lines else describe_exit(code)
            raise ConformanceError(f"{case}: its own process could not begin: {why}")
        place = condense((folder / _CRASH).read_text(encoding="utf-8", errors="replace"))
    seconds = time.perf_counter() - started
    return crashed(setup, case, seconds, place, ended=describe_exit(code))


def _run(folder: Path) -> int:
    command = [sys.executable, "-c", _CHILD.format(folder=str(folder), parent=os.getpid())]
    with (folder / _OUTPUT).open("wb") as output:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        process = psutil.Process(child.pid)
        try:
            return child.wait()
        finally:  # the timeout of the case is an exception
            if child.poll() is None:
                end_tree(process)
                child.wait()


def play(folder: str, parent: int) -> None:
    """In the process: play the case that is asked for in ``folder``, and write its result there."""
    end_with_parent(parent)
    place = Path(folder)
    asked: tuple[Settings, list[str], str] = pickle.loads((place / _ASKED).read_bytes())
    settings, names, case = asked
    setup = make_setup(settings, load_plugins(names))
    with (place / _CRASH).open("w", encoding="utf-8") as file:
        faulthandler.enable(file=file)
        (place / _BEGUN).touch()
        result = setup.session.run(CaseId.parse(case))
        faulthandler.disable()
    part = place / f"{_ANSWER}.part"
    part.write_text(encode(result), encoding="utf-8")
    part.rename(place / _ANSWER)
