"""Collects results in the reporting process as they arrive, and sums them up."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import conformance
from conformance.app.pytest_plugin.options import (
    ATTRIBUTES,
    COLLECTOR,
    MODULES,
    PROBLEM,
    RESULT,
    SUITE_NODE,
    case_of,
)
from conformance.app.pytest_plugin.run_end import RunEnd, about
from conformance.app.pytest_plugin.setup import Setup, find_setup
from conformance.app.pytest_plugin.worker_crashes import unjudged, write_to_real_stderr
from conformance.app.pytest_plugin.worker_processes import STOPS, WorkerProcesses, stop_run
from conformance.app.run_settings import Settings
from conformance.backend import device
from conformance.core.engine import Engine
from conformance.core.errors import ConformanceError, ResultError
from conformance.core.invocation import this_invocation
from conformance.core.missing_names import missing_names
from conformance.core.names import DEFAULT, QUICK
from conformance.core.plain_text import plain
from conformance.core.unavailable import sentences
from conformance.core.verdict import CaseId, CaseResult, decode, encode
from conformance.reference.surroundings import Environment, family_digest
from conformance.report import Outcome, failure_message, properties, render, summary
from conformance.report.jsonl import ResultFile
from conformance.report.outcome import count
from conformance.run.field_coverage import known_fields, new_fields
from conformance.run.registry import Registry
from conformance.run.reuse.dependency_recorder import Seen
from conformance.run.reuse.planning import bare
from conformance.run.selection import DEFAULT_ENGINES
from conformance.run.unexercised import unexercised

_TIERS = {
    QUICK: " of the quick tier: the schedules that catch most",
    DEFAULT: " of the default tier: what tests the engine runs on one family of each kind",
}


def install(config: pytest.Config) -> None:
    """Add a result collector to the run.

    Raises:
        pytest.UsageError: an option, a plugin or a file is not valid; the text is one sentence.
    """
    if config.option.collectonly:
        return
    try:
        setup = find_setup(config)
        assert setup.cases or setup.selection.shard.count > 1, "what matches nothing raises"
        if setup.settings.devices:
            device.check_gpu()
        file = ResultFile(setup.settings.json)
    except ConformanceError as error:
        raise pytest.UsageError(str(error)) from error
    processes = WorkerProcesses(setup, config)
    config.pluginmanager.register(processes)
    collector = ResultCollector(setup, file, processes, config)
    config.pluginmanager.register(collector, COLLECTOR)


class ResultCollector:
    """A plugin of the reporting process; gets the result of every case."""

    def __init__(
        self,
        setup: Setup,
        file: ResultFile,
        processes: WorkerProcesses,
        config: pytest.Config,
    ) -> None:
        self.setup = setup
        self._config = config
        self.processes = processes
        self._file = file
        self._results: dict[str, CaseResult] = {}
        self._problems: list[str] = []
        self._selected: frozenset[str] | None = None
        self._started_items: dict[str, float] = {}
        self._keeper = ResultKeeper(setup) if setup.settings.keep else None
        self._interrupted = False
        self._unwritten = False
        self._failures = 0
        self._reused: frozenset[str] = frozenset()
        self._begin = time.perf_counter()
        self._invocation = this_invocation(options=setup.settings.rerun_options)

    # What comes in -------------------------------------------------------------------------------

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Record what will be run, in this process."""
        self._select(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Iterable[str]) -> None:
        """Record what will be run, in a worker."""
        self._select(ids)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A case begins, here or in a worker."""
        self._started_items[nodeid] = time.perf_counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A case ended, here or in a worker."""
        text = getattr(report, ATTRIBUTES[RESULT], None)
        if text:
            self._record(decode(text))
        modules = getattr(report, ATTRIBUTES[MODULES], None)
        if text and modules and self._keeper:
            self._keeper.take(decode(text).case, modules)
        case = case_of(report.nodeid)
        if report.failed and case is not None and case not in self._results:
            self._record(unjudged(self.setup, CaseId.parse(case), report.longreprtext))
        self._failures += report.failed
        problem = getattr(report, ATTRIBUTES[PROBLEM], None)
        if problem:
            self._problems.append(problem)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any) -> None:
        """Record the crash of a worker as a verdict on the case it was running."""
        case = case_of(crashitem)
        if case is None:
            return
        known = self._results.get(case) if self.processes.retired(report.node) else None
        seconds = time.perf_counter() - self._started_items.get(crashitem, time.perf_counter())
        crash = self.processes.crash(CaseId.parse(case), report.node, seconds)
        result = known or self.setup.judge.compared(crash)
        setattr(report, ATTRIBUTES[RESULT], encode(result))
        report.user_properties = properties(result)
        report.location = (SUITE_NODE, None, case)
        report.when = "call"
        report.outcome = "passed" if result.expected else "failed"
        report.longrepr = (
            None
            if result.expected
            else plain(failure_message(result, options=self.setup.settings.rerun_options))
        )

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """The user (or ``pytest.exit``) stopped the run."""
        self._interrupted = type(excinfo.value) in STOPS

    # What is reported ----------------------------------------------------------------------------

    @property
    def end(self) -> RunEnd:
        """How the run ended, or would end now."""
        played = self._selected
        if played is None:  # nothing was collected yet
            played = frozenset(map(str, self.setup.cases))
        most = self._config.option.maxfail or 0
        return RunEnd(
            played | self._reused,
            self._results.keys(),
            first_failure=0 < most <= self._failures,
            interrupted=self._interrupted,
            unwritten=self._unwritten,
            empty_shard=not self.setup.cases,
            about=about(self.setup, self._invocation.started),
        )

    @property
    def selected(self) -> int:
        """The number of cases that will be run, as soon as it is known."""
        return len(self._selected or ())

    def recorded_seconds(self) -> dict[str, float]:
        """The recorded seconds of each case that will be run."""
        cases = map(CaseId.parse, self._selected or ())
        of_case, group_of = self.setup.seconds.of_case, self.setup.group_of
        return {str(case): of_case(group_of(case), case.scenario) for case in cases}

    def expected_seconds(self, processes: int) -> float:
        """The recorded seconds of the cases, spread over processes; a group stays in one."""
        groups: dict[str, float] = defaultdict(float)
        for case in self.setup.cases:
            group = self.setup.group_of(case)
            groups[group] += self.setup.seconds.of_case(group, case.scenario)
        return max([sum(groups.values()) / processes, *groups.values()])

    def outcome(self) -> Outcome:
        """The outcome of the run so far; results in the order of the selection."""
        order = {str(case): index for index, case in enumerate(self.setup.selected)}
        results = sorted(self._results.values(), key=lambda r: order.get(r.case, len(order)))
        whole = self._results.keys() >= order.keys()
        return Outcome(
            results=tuple(results),
            scenarios=tuple(self.setup.registry.scenarios),
            problems=(
                *self._problems,
                *self.processes.problems,
                *not_played(self.setup.settings, self.setup.registry, results),
                *(self._stale(results) if whole else ()),
            ),
            missing=self.end.missing,
            interrupted=self._interrupted,
            seconds=time.perf_counter() - self._begin,
            notes=(
                *self.setup.selection.shard.notes,
                *(unexercised(self.setup.registry, self.setup.selection, results) if whole else ()),
                *(new_fields(self._engines, known_fields()) if whole else ()),
            ),
        )

    @property
    def _engines(self) -> list[type[Engine]]:
        return [self.setup.registry.engines[name] for name in self.setup.engines]

    def take(self, results: Iterable[CaseResult]) -> None:
        """Add results that need not be computed again."""
        reused = tuple(results)
        self._reused = frozenset(result.case for result in reused)
        for result in reused:
            self._record(result)

    def pytest_report_header(self) -> list[str]:
        """Versions and device, which affect the numbers."""
        said = self.setup.settings.keep  # printed by the command that calls pytest
        lines = [] if said else [f"conformance: {note}" for note in self.setup.notes]
        for name in self.setup.libraries:
            library = self.setup.registry.libraries[name]
            versions = ", ".join(f"{k} {v}" for k, v in library.versions().items())
            lines.append(f"conformance {conformance.__version__}: {versions}; {library.device()}")
        if chosen := self.setup.settings.devices:
            lines.append(f"conformance: workers take in turn device {', '.join(chosen)}")
        cases = count(len(self.setup.cases), "case")
        played = _TIERS.get(self.setup.selection.tier.name, "")
        lines.append(f"conformance: {cases}{played}")
        return lines

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(
        self, session: pytest.Session, exitstatus: int
    ) -> Generator[None, Any, Any]:
        """Complete the result file if possible.

        A stale expectation fails the run. So does an unexpected verdict, even if a hook or mark of
        others made its report pass.
        """
        if self._keeper:
            keys = self._keeper.keep(self._results.values())
            for case, key in keys.items():
                self._results[case] = msgspec.structs.replace(self._results[case], key=key)
            if self._keeper.problem:
                write_to_real_stderr(self._config, f"conformance: {self._keeper.problem}\n")
        self._end_file()
        self.processes.close()
        if exitstatus == pytest.ExitCode.OK and not self.outcome().ok:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        session.exitstatus = code = self.end.exit_code(int(session.exitstatus))
        result = yield
        # syrupy restores the first status, and adds that a snapshot is unused.
        unused = session.exitstatus == pytest.ExitCode.TESTS_FAILED
        session.exitstatus = code or int(unused)
        return result

    def _end_file(self) -> None:
        """Give the results their final name, or leave them in the partial file."""
        end = self.end
        if not end.whole:
            self._file.close()
            return
        with self._file_errors_reported():
            self._file.begin(end.header)
            self._file.finish(self.outcome().results)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the matrix and the totals, once; pytest itself prints the failures."""
        writer = terminalreporter._tw
        text = summary(self.outcome(), width=writer.fullwidth, failures=False)
        terminalreporter.section("conformance")
        terminalreporter.write(render(text, colour=writer.hasmarkup) + "\n")

    def _record(self, result: CaseResult) -> None:
        result = msgspec.structs.replace(result, invocation=self._invocation)
        self._results[result.case] = result
        with self._file_errors_reported():
            if len(self._results) == 1:
                self._file.begin(self.end.header)
            self._file.add(result)

    @contextlib.contextmanager
    def _file_errors_reported(self) -> Iterator[None]:
        """If results can't be written, as on a full disk, end the run; earlier results stay."""
        try:
            yield
        except ResultError as error:
            why = f"{error}; {self._file.partial.name} has those before"
            why = why if self._file.kept else str(error)
            self._file.close()
            self._file, self._unwritten = ResultFile(None), True
            self._problems.append(why)
            stop_run(self._config, why)

    def _select(self, nodeids: Iterable[str]) -> None:
        self._selected = frozenset(case for node in nodeids if (case := case_of(node)))

    def _stale(self, results: list[CaseResult]) -> tuple[str, ...]:
        if self.setup.expectations is None or not self.setup.complete:
            return ()
        return self.setup.expectations.stale(results, whole=True)


# What a run omits of the requested cases because a part of a plugin is missing -------------------


def not_played(
    settings: Settings, registry: Registry, results: Iterable[CaseResult]
) -> tuple[str, ...]:
    """Sentences about what the engines lack and the results do not show.

    Mends are reported as missing only if a known defect has none.
    """
    results = tuple(results)
    missed = settings.mends and any(result.unmended for result in results)
    mends = ["conformance_mends"] if missed else []
    lacking = registry.lacking(settings.engines or DEFAULT_ENGINES, also=mends)
    names = (name for result in results for name in missing_names(result.evidence))
    return tuple(
        f"not all was played: {line}" for line in (*sentences(lacking), *dict.fromkeys(names))
    )


# Keeps the results of a run for later ones, in the reporting process ------------------------------


class ResultKeeper:
    """Collects what each case depends on; at the end it writes the results under their keys.

    Attributes:
        problem: a sentence if nothing was kept because something changed during the run.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._modules: dict[tuple[str, str], dict[str, Seen]] = {}
        self._cases: set[str] = set()
        self.problem = ""

    def take(self, case: str, modules: str) -> None:
        """Note that a case may be kept.

        Args:
            case: its id.
            modules: JSON of what it depends on, without what was reported before.
        """
        found = msgspec.json.decode(modules, type=dict[str, Seen])
        name = CaseId.parse(case)
        self._modules.setdefault((name.engine, name.family), {}).update(found)
        self._cases.add(case)

    def keep(self, results: Iterable[CaseResult]) -> dict[str, str]:
        """Write the results that may be kept; return the key of each.

        Nothing is written if the installation or the settings have changed since the run began.
        """
        kept: dict[tuple[str, str], list[CaseResult]] = {}
        for result in results:
            if result.case in self._cases and not result.reused:
                kept.setdefault((result.engine, result.family), []).append(result)
        before = self._setup.environment
        if kept and Environment().contents != before.contents:
            self.problem = "what is installed changed during this run: its results are not kept"
            return {}
        store = self._setup.result_store()
        tier = self._setup.selection.tier.name
        keys = {}
        for (engine, name), found in kept.items():
            family = self._setup.registry.families[
                self._setup.registry.engines[engine].library, name
            ]
            if Path(family.path).is_file() and not before.unchanged(Path(family.path)):
                continue
            digest = family_digest(family)
            store.add(
                engine,
                name,
                family_digest=digest,
                modules=self._modules[engine, name],
                results={tier: [bare(result) for result in found]},
            )
            for result in found:
                keys[result.case] = store.key(CaseId.parse(result.case), digest, tier)
        return keys
