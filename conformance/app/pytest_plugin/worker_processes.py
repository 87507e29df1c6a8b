"""Watches the memory of the processes that run cases, and turns their crashes into results."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from conformance.app.pytest_plugin.options import DEVICE, KERNELS, case_of
from conformance.app.pytest_plugin.setup import Setup
from conformance.app.pytest_plugin.worker_crashes import (
    MEMORY,
    CrashFiles,
    crashed,
    exit_of,
    over_memory,
    process_of,
    write_to_real_stderr,
)
from conformance.core.devices import Turns
from conformance.core.memory_limit import SHARE_OF_REAL, MemoryWatch, fair_limit
from conformance.core.processes import end_trees
from conformance.core.verdict import CaseId, CaseResult

_THIS_PROCESS = "main"
"""The reporting process if it runs the cases itself; xdist calls its workers ``gw0`` etc."""

STOPS = (KeyboardInterrupt, pytest.exit.Exception)
"""Exceptions that stop a run from outside; ``-x`` raises a subclass."""

_SIGNAL_SECONDS = 0.2
"""A signal that ended a worker reaches and interrupts this process within this time."""

_MOST_EARLY_CRASHES = 3
"""The run is stopped if this many workers crash before they know their cases."""


class WorkerProcesses:
    """A plugin of the reporting process that knows the workers by their names (``gw0``).

    Attributes:
        problems: sentences about why no worker could run anything.
    """

    def __init__(self, setup: Setup, config: pytest.Config) -> None:
        self._setup = setup
        self._config = config
        self.problems: list[str] = []
        self._running = ""
        self._ready: set[str] = set()
        self._pids: set[int] = set()
        self._early_crashes = 0
        self._crash_files = CrashFiles()
        self._kernels = tempfile.TemporaryDirectory(
            prefix="conformance-", ignore_cleanup_errors=True
        )
        self._turns = Turns(setup.settings.devices)
        workers = getattr(config.option, "numprocesses", None) or 0
        self._watch = MemoryWatch(_limit(setup, workers), self._on_excess)
        if not workers:
            self._watch.add(_THIS_PROCESS, os.getpid())

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionstart(self) -> Generator[None, Any, Any]:
        """Let Ctrl-C in a terminal reach only this process, with which the workers end.

        Workers inherit the blocked signal; one that arrives meanwhile is delivered here afterwards.

        Raises:
            KeyboardInterrupt: a signal to all ended workers before they had begun.
            pytest.exit.Exception: another cause did.
        """
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return (yield)
        except EOFError as error:  # from xdist, which waits for an answer from each worker
            time.sleep(_SIGNAL_SECONDS)
            why = "a worker ended before it could begin"
            self.problems.append(why)
            raise pytest.exit.Exception(why, pytest.ExitCode.INTERNAL_ERROR) from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """A worker is about to start."""
        self._crash_files.assign(node)
        node.workerinput[DEVICE] = self._turns.take(node.gateway.id)
        node.workerinput[KERNELS] = str(Path(self._kernels.name) / node.gateway.id)
        sharers = self._turns.most(node.workerinput["workercount"])
        node.workerinput[MEMORY] = (self._setup.settings.memory, sharers)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:
        """A worker runs."""
        if (process := process_of(node)) is not None:
            self._pids.add(process.pid)
            self._watch.add(node.gateway.id, process.pid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any) -> None:
        """A worker knows its cases."""
        self._ready.add(node.gateway.id)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Handle the end of a worker. xdist would start thousands more that crash at start."""
        self._turns.give_back(node.gateway.id)
        if error is None or node.gateway.id in self._ready:
            return
        self._early_crashes += 1
        if self._early_crashes == _MOST_EARLY_CRASHES:
            crash = ": ".join(filter(None, (exit_of(node), self._summary(node))))
            why = f"workers crash before they have run anything ({crash or error})"
            self.problems.append(why)
            stop_run(self._config, why)
            # Without this, xdist would replace them as long as one is left.
            workers: Any = self._config.pluginmanager.get_plugin("dsession")
            workers._max_worker_restart = 0

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Stop the workers with the run: xdist would wait ten seconds for workers in a case."""
        if type(excinfo.value) in STOPS:
            end_trees(self._pids)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A case begins, here or in a worker."""
        self._running = case_of(nodeid) or nodeid

    def retired(self, node: Any) -> bool:
        """Whether a worker ended by itself after a case, to be replaced by a fresh one."""
        return self._crash_files.retired(node.gateway.id)

    def crash(self, case: CaseId, node: Any, seconds: float) -> CaseResult:
        """The result of a case whose worker crashed after ``seconds``."""
        taken = self._watch.taken(node.gateway.id)
        found = (taken, self._watch.limit) if taken is not None else None
        of_device = self._crash_files.taken_of_device(node.gateway.id)
        bytes_taken = found or of_device
        if bytes_taken is None:
            return crashed(self._setup, case, seconds, self._summary(node), ended=exit_of(node))
        taken, limit = bytes_taken
        memory = "memory" if found else "memory of its device"
        return over_memory(
            self._setup, case, seconds, self._summary(node), taken=taken, limit=limit, memory=memory
        )

    def close(self) -> None:
        """Stop watching, and remove the workers' files."""
        self._crash_files.close()
        self._kernels.cleanup()
        self._watch.close()

    def _summary(self, node: Any) -> str:
        return self._crash_files.summary(node.gateway.id)

    def _on_excess(self, name: str) -> None:
        """Give up if this very process is about to be ended: no verdict is possible."""
        if name == _THIS_PROCESS:
            write_to_real_stderr(
                self._config,
                f"conformance: {self._running}: takes more than {self._watch.limit / 1e9:.3g} GB "
                "of memory, and the run is in one process: it is ended. With workers (--jobs, -n) "
                "the rest would go on; --memory sets the limit.\n",
            )


def stop_run(config: pytest.Config, why: str) -> None:
    """End the run after the cases that are running, as an interruption does."""
    for name in ("session", "dsession"):
        if (one := config.pluginmanager.get_plugin(name)) is not None:
            one.shouldstop = why


def _limit(setup: Setup, workers: int) -> int:
    """The memory limit of a process in bytes; 0 for no limit."""
    given = setup.settings.memory
    if given is not None:
        return int(given * 1e9)
    groups = {setup.group_of(case) for case in setup.cases}
    processes = min(workers, len(groups))
    real = setup.settings.checkpoint
    if real is None:
        return fair_limit(processes)
    return 0 if real.force else fair_limit(processes, SHARE_OF_REAL)
