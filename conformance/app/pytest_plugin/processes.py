"""The processes that run cases: watched while they live, and asked how they died."""

from __future__ import annotations

import os
from typing import Any

import pytest

from conformance.app.pytest_plugin.deaths import LastWords, cry, exit_of, process_of
from conformance.app.pytest_plugin.failures import crashed, overfull
from conformance.app.pytest_plugin.footprint import SHARE_OF_REAL, fair_limit
from conformance.app.pytest_plugin.nodeids import case_of
from conformance.app.pytest_plugin.setup import Setup
from conformance.app.pytest_plugin.watching import MemoryWatch
from conformance.core.verdict import CaseId, CaseResult

_HERE = "here"
"""The process that reports, where it runs the cases itself; no worker is called so."""

_MOST_STILLBORN = 3
"""So many workers may die before they know their cases; then the run is stopped."""


class Processes:
    """A plugin of the process that reports; knows the workers by their names (``gw0``).

    Attributes:
        problems: sentences about why no worker could run anything.
    """

    def __init__(self, setup: Setup, config: pytest.Config) -> None:
        self._setup = setup
        self._config = config
        self.problems: list[str] = []
        self._running = ""
        self._begun: set[str] = set()
        self._stillborn = 0
        self._last_words = LastWords()
        workers = getattr(config.option, "numprocesses", None) or 0
        self._watch = MemoryWatch(_limit(setup, workers), self._overfull)
        if not workers:
            self._watch.add(_HERE, os.getpid())

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """A worker is about to start."""
        self._last_words.assign(node)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:
        """A worker runs."""
        if (process := process_of(node)) is not None:
            self._watch.add(node.gateway.id, process.pid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any) -> None:
        """A worker has come so far that it knows its cases."""
        self._begun.add(node.gateway.id)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """A worker is over, well or ill. xdist would try thousands that die as they start."""
        self._watch.remove(node.gateway.id)
        if error is None or node.gateway.id in self._begun:
            return
        self._stillborn += 1
        if self._stillborn == _MOST_STILLBORN:
            said = ": ".join(filter(None, (exit_of(node), self._last_words.of(node.gateway.id))))
            why = f"workers die before they have run anything ({said or error})"
            self.problems.append(why)
            stop_run(self._config, why)
            # Without it, xdist would replace them as long as one is left.
            workers: Any = self._config.pluginmanager.get_plugin("dsession")
            workers._max_worker_restart = 0

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A case begins, here or in a worker."""
        self._running = case_of(nodeid) or nodeid

    def retired(self, node: Any) -> bool:
        """Whether a worker ended by itself after a case, to be replaced by a fresh one."""
        return self._last_words.retired(node.gateway.id)

    def death(self, case: CaseId, node: Any, seconds: float) -> CaseResult:
        """The result of the case that a worker died of, which it had run for ``seconds``."""
        said, taken = self._last_words.of(node.gateway.id), self._watch.taken(node.gateway.id)
        if taken is None:
            return crashed(self._setup, case, seconds, said, ended=exit_of(node))
        return overfull(self._setup, case, seconds, said, taken=taken, limit=self._watch.limit)

    def close(self) -> None:
        """Watch no more, and remove what workers said."""
        self._last_words.close()
        self._watch.close()

    def _overfull(self, name: str) -> None:
        """Where it is this very process that is about to be ended, no verdict can be given."""
        if name == _HERE:
            cry(
                self._config,
                f"conformance: {self._running}: takes more than {self._watch.limit / 1e9:.3g} GB "
                "of memory, and the run is in one process: it is ended. With workers (--jobs, -n) "
                "the rest would go on; --memory sets the limit.\n",
            )


def stop_run(config: pytest.Config, why: str) -> None:
    """End the run after the cases that are being run, as an interruption does."""
    for name in ("session", "dsession"):
        if (one := config.pluginmanager.get_plugin(name)) is not None:
            one.shouldstop = why


def _limit(setup: Setup, workers: int) -> int:
    """How many bytes a process may take; 0 for no limit."""
    given = setup.settings.memory
    if given is not None:
        return int(given * 1e9)
    groups = {setup.group_of(case) for case in setup.cases}
    processes = min(workers, len(groups))
    real = setup.settings.checkpoint
    if real is None:
        return fair_limit(processes)
    return 0 if real.force else fair_limit(processes, SHARE_OF_REAL)
