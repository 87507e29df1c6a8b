"""A pytest plugin of the reporting process: cases are run on a cluster instead of here.

Results are reported as in any run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from distributed import Client

from conformance.app.cluster.client import as_they_come
from conformance.app.cluster.parts import Part, Played, Work, parts_of, play
from conformance.app.pytest_plugin.items import CaseItem
from conformance.app.pytest_plugin.options import ATTRIBUTES, RESULT
from conformance.app.pytest_plugin.setup import find_setup
from conformance.app.pytest_plugin.worker_crashes import crashed, unjudged
from conformance.app.run_settings import Settings
from conformance.core.errors import ConformanceError
from conformance.core.verdict import CaseResult, decode, encode
from conformance.report import failure_message, properties


class ClusterLoop:
    """Attributes: ``problem``: a sentence why the run could not go on; empty if it did."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self.problem = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the cases on the cluster, everything else here."""
        if session.testsfailed or session.config.option.collectonly:
            return None
        items = {str(item.case): item for item in session.items if isinstance(item, CaseItem)}
        for item in session.items:
            if not isinstance(item, CaseItem):
                item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
                runtestprotocol(item, nextitem=None)
        setup = find_setup(session.config)
        parts = parts_of((i.case for i in items.values()), setup.group_of, setup.seconds)
        try:
            ended = list(self._played(session, items, parts))
            # Only the case that ended its process lacks a result: run each case of a part by
            # itself.
            alone = [Part(part.group, (case,), 0.0) for part in ended for case in part.cases]
            for part in self._played(session, items, alone):
                for case in part.cases:
                    _report(items[str(case)], _crash(items[str(case)]))
        except ConformanceError as error:
            self.problem = str(error)
            raise session.Interrupted(self.problem) from error
        return True

    def _played(
        self, session: pytest.Session, items: dict[str, CaseItem], parts: list[Part]
    ) -> Iterator[Part]:
        """Report the cases of these parts as they arrive; return the parts that ended a process."""
        work = [Work(part, self._settings) for part in parts]
        nothing: Callable[[Work, str], Played | None] = lambda _, __: None  # noqa: E731
        for index, found in as_they_come(self._client, play, work, on_crash=nothing):
            if found is None:
                yield parts[index]
                continue
            results = {result.case: result for result in map(decode, found.lines)}
            for case in parts[index].cases:
                item = items[str(case)]
                lacking = results.get(str(case)) or unjudged(item.setup_, case, found.said)
                _report(item, lacking)
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if session.shouldstop:
                    raise session.Interrupted(session.shouldstop)


def _crash(item: CaseItem) -> CaseResult:
    ended = "the workers that played it ended, or what they started did"
    return item.setup_.judge.compared(crashed(item.setup_, item.case, 0.0, ended))


def _report(item: CaseItem, result: CaseResult) -> None:
    """Report a case as if it had been run here."""
    options = item.setup_.settings.rerun_options
    report: Any = pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords={},
        outcome="passed" if result.expected else "failed",
        longrepr=None if result.expected else failure_message(result, options=options),
        when="call",
        duration=result.seconds,
        user_properties=list(properties(result)),
    )
    setattr(report, ATTRIBUTES[RESULT], encode(result))
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
