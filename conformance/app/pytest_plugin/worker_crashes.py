"""Cases that returned no result: how and where their process ended, and the result in its place."""

from __future__ import annotations

import faulthandler
import os
import re
import subprocess
import tempfile
import traceback
from pathlib import Path
from typing import Any

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

from conformance.app.pytest_plugin.device_memory import (
    device_limit,
    taken_of_device,
    watch_device_memory,
    without_device,
)
from conformance.app.pytest_plugin.options import OWN_KERNELS
from conformance.app.pytest_plugin.setup import Setup
from conformance.core.errors import ConformanceError, MachineError
from conformance.core.processes import describe_exit
from conformance.core.verdict import CaseId, CaseResult, Finding, Verdict
from conformance.run.judging.judge import Outcome
from conformance.run.judging.summing import result_of

TAINTED = pytest.StashKey[bool]()
"""Set on a worker's config if an earlier case left threads or incomplete objects behind."""
INPUT = "conformance_crash_file"
MEMORY = "conformance_memory_of_device"
"""A worker's input: the limit in GB, if one was set, and how many workers share its device."""
_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)$')
_CRASH_FILE = pytest.StashKey[Any]()
_RETIRED = "retired"
# A worker's pipe closes before the worker has ended; it may first write a dump of its memory.
_EXIT_SECONDS = 5.0


class CrashFiles:
    """In the reporting process: one file for each worker, for faulthandler's traceback."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="conformance-")

    def assign(self, node: Any) -> None:
        """Give a worker that is about to start its file."""
        node.workerinput[INPUT] = str(self._path(node.gateway.id))

    def summary(self, worker: str) -> str:
        """One line with the fault and the last Python frame; empty if nothing was written."""
        return condense(without_device(self._text(worker)))

    def taken_of_device(self, worker: str) -> tuple[int, int] | None:
        """How much of its device a worker used, and the limit, if it ended itself for this."""
        return taken_of_device(self._text(worker))

    def _text(self, worker: str) -> str:
        try:
            return self._path(worker).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def retired(self, worker: str) -> bool:
        """Whether a worker ended by itself after a case, to be replaced by a fresh one."""
        return self.summary(worker) == _RETIRED

    def close(self) -> None:
        """Remove the files."""
        self._folder.cleanup()

    def _path(self, worker: str) -> Path:
        return Path(self._folder.name) / f"{worker}.txt"


def use_crash_file(config: pytest.Config) -> None:
    """In a worker: make faulthandler write to the worker's file; watch its device."""
    path = getattr(config, "workerinput", {}).get(INPUT)
    if path:
        config.stash[_CRASH_FILE] = file = Path(path).open("w", encoding="utf-8")  # noqa: SIM115
        faulthandler.enable(file=file)
        config.pluginmanager.register(Retiring(config))
        given = config.workerinput[MEMORY]  # type: ignore[attr-defined]
        watch_device_memory(device_limit(*given), file)


def traceback_target(config: pytest.Config) -> Any:
    """The worker's open file; in a process without one, pytest's copy of the real stderr."""
    stderr = config.stash.get(fault_handler_stderr_fd_key, None)
    return config.stash.get(_CRASH_FILE, stderr)


def write_to_real_stderr(config: pytest.Config, text: str) -> None:
    """Write past pytest's capture."""
    file = config.stash.get(fault_handler_stderr_fd_key, None)
    if file is not None:
        os.write(file, text.encode(errors="replace"))


class Retiring:
    """In a worker: ends it after a case that tainted it; its other cases go to a fresh one.

    After every other case it exchanges kernels with the other workers.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self) -> None:
        """End the worker after its report is sent; leaked threads would prevent a normal exit."""
        tainted = self._config.stash.get(TAINTED, False)
        if own := self._config.stash.get(OWN_KERNELS, None):
            own.join() if tainted else own.exchange()
        if tainted:
            file = self._config.stash[_CRASH_FILE]
            file.write(_RETIRED)
            file.flush()
            os._exit(0)


def process_of(node: Any) -> Any:
    """The process of a worker, a ``Popen``; ``None`` for a worker on another machine."""
    return getattr(getattr(node.gateway, "_io", None), "popen", None)


def exit_of(node: Any) -> str:
    """How the process of a worker ended: ``signal SIGSEGV``, or ``exit status 3``.

    Empty if xdist does not know the process, for example on another machine.
    """
    process = process_of(node)
    try:
        return describe_exit(process.wait(_EXIT_SECONDS)) if process is not None else ""
    except subprocess.TimeoutExpired:
        return ""


def condense(text: str) -> str:
    """One line of a faulthandler dump: its heading, and the frame that was running.

    Frames are listed from the most recent call; other threads come before the current one. Empty
    for an empty dump.
    """
    lines = text.splitlines()
    if not lines:
        return ""
    heading = lines[0].removeprefix("Fatal Python error: ").rstrip("!")
    starts = [i for i, line in enumerate(lines) if line.startswith("Current thread")]
    threads = [i for i, line in enumerate(lines) if line.startswith("Thread ")]
    # A dump after a timeout has no current thread; the main thread comes last.
    begin = (starts or threads or [0])[-1]
    frame = next((found for line in lines[begin:] if (found := _FRAME.match(line))), None)
    if frame is None:
        return heading
    parts = Path(frame["file"]).parts[-3:]
    return f"{heading} in {'/'.join(parts)}:{frame['line']}, {frame['function']}"


def crashed(
    setup: Setup, case: CaseId, seconds: float, place: str, *, ended: str = ""
) -> CaseResult:
    """The worker process crashed while it ran ``case``; a hang if the timeout was reached.

    Args:
        place: the fault and the last Python frame, if the process could write it.
        ended: how it ended, such as ``signal SIGKILL``.
    """
    timeout = setup.timeout_of(case)
    if 0 < timeout <= seconds:
        return hang(setup, case, seconds, place)
    got = ": ".join(filter(None, (ended, place)))
    cause = "native code read or wrote out of bounds, for example a token id past the vocabulary"
    if ended == "signal SIGKILL":
        cause = "it was killed from outside: by the system, where memory ran out, or by a user"
    finding = Finding(
        verdict=Verdict.CRASH,
        check="process",
        what="the process that ran the case crashed without a Python exception",
        expected="a verdict",
        got=got or "the end of the process (killed, or an exit from native code)",
        cause=cause,
    )
    return _result(setup, case, finding, seconds)


def over_memory(
    setup: Setup,
    case: CaseId,
    seconds: float,
    place: str,
    *,
    taken: int,
    limit: int,
    memory: str = "memory",
) -> CaseResult:
    """The worker process was ended while it ran ``case``, because of its memory use."""
    finding = Finding(
        verdict=Verdict.CRASH,
        check="memory",
        what=f"the process that ran the case took more {memory} than it may, and was ended",
        expected=f"at most {limit / 1e9:.3g} GB",
        got=f"{taken / 1e9:.3g} GB" + (f" ({place})" if place else ""),
        cause="memory that grows without end, or a limit (--memory) too low for this model",
    )
    return _result(setup, case, finding, seconds)


def hang(setup: Setup, case: CaseId, seconds: float, place: str = "") -> CaseResult:
    """The case was stopped by the timeout."""
    finding = Finding(
        verdict=Verdict.HANG,
        check="process",
        what="the case took longer than the timeout and was stopped",
        expected=f"an end within {setup.timeout_of(case):g} s",
        got=f"none after {seconds:.0f} s" + (f" ({place})" if place else ""),
        cause="an engine call that does not return, or a machine that is too slow for this timeout",
    )
    return _result(setup, case, finding, seconds)


def harness_failure(setup: Setup, case: CaseId, error: BaseException, seconds: float) -> CaseResult:
    """The harness itself raised an exception, which it must not do."""
    got = str(error)
    cause = "a defect of mlx-conformance or of a plugin, not of the engine"
    if isinstance(error, MachineError):
        cause = "this machine, not the engine: give it what it lacks, and run again"
    elif not isinstance(error, ConformanceError):
        got = traceback.format_exception_only(error)[-1].strip()
    finding = Finding(
        verdict=Verdict.CRASH,
        check="harness",
        what="the harness could not run the case",
        expected="a verdict",
        got=got,
        cause=cause,
    )
    return _result(setup, case, finding, seconds)


def unjudged(setup: Setup, case: CaseId, text: str) -> CaseResult:
    """Something other than the case failed, such as another plugin's hook."""
    lines = [line for line in text.splitlines() if line.strip()]
    return harness_failure(setup, case, ConformanceError(lines[-1] if lines else "no text"), 0.0)


def _result(setup: Setup, case: CaseId, finding: Finding, seconds: float) -> CaseResult:
    library = setup.registry.libraries[setup.library_of(case)]
    return result_of(
        case,
        Outcome((finding,), (), None),
        adds="",
        versions=setup.registry.versions_of(case.engine),
        device=library.device(),
        seconds=seconds,
    )
