"""Progress of a run: a bar with counts and time left, or plain lines without a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import pytest
from rich import progress as bars
from rich.console import Console
from rich.text import Text

from conformance.app.cli.output_options import Verbosity
from conformance.app.pytest_plugin import find_collector
from conformance.app.pytest_plugin.options import ATTRIBUTES, RESULT
from conformance.app.pytest_plugin.result_collector import ResultCollector
from conformance.app.pytest_plugin.run_end import RunEnd
from conformance.core.verdict import CaseResult, decode
from conformance.report import Outcome, duration
from conformance.report.matrix import UNEXPECTED
from conformance.report.worsening import Base
from conformance.run.family_seconds import TimeLeft

LINE_EVERY_SECONDS = 10.0
BAR_EVERY_SECONDS = 0.1
SHORT_SECONDS = 10.0
"""A shorter run names no failing case before its summary, which begins with the findings."""

_SHORT = 60.0  # seconds

NOTE_COLUMNS = 76
"""A narrower terminal gets a short note behind the bar."""


class Progress:
    """A pytest plugin of the reporting process; it has the outcome once the run is over."""

    def __init__(
        self,
        console: Console,
        verbosity: Verbosity = Verbosity.NORMAL,
        reused: Sequence[CaseResult] = (),
        base: Base | None = None,
        processes: int = 1,
    ) -> None:
        self._console = console
        self._base = base
        self._verbosity = verbosity
        self._processes = processes
        self._collector: ResultCollector | None = None
        self._bar: bars.Progress | None = None
        self._task = bars.TaskID(0)
        self._total = self._done = self._unexpected = 0
        self._workers = 0
        self._left: TimeLeft | None = None
        self._begin = self._shown = time.monotonic()
        self._reused = reused
        self._held: list[CaseResult] = []

    def outcome(self) -> Outcome | None:
        """The outcome of the run; ``None`` if the run never began."""
        return self._collector.outcome() if self._collector else None

    def end(self) -> RunEnd | None:
        """How the run ended; ``None`` if it never began."""
        return self._collector.end if self._collector else None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Print the settings that the numbers depend on."""
        self._collector = find_collector(session.config)
        if self._collector and self._reused:
            self._collector.take(self._reused)
        if self._collector and self._verbosity is not Verbosity.QUIET:
            *lines, cases = self._collector.pytest_report_header()
            takes = self._collector.expected_seconds(self._processes)
            at_once = f", {self._processes} at once" if self._processes > 1 else ""
            about = f"about {duration(takes)}" if takes >= _SHORT else "less than a minute"
            cases += f"; {about}{at_once}, by recorded times"
            for line in (*lines, cases):
                self._console.print(Text(line, style="bright_black"), soft_wrap=True)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Start the bar: the number of cases is known."""
        if session.items:
            self._start()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Iterable[str]) -> None:
        """Start the bar: the number of cases is known, the same in each worker."""
        if list(ids):
            self._workers += 1
            self._start()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a finished case."""
        text = getattr(report, ATTRIBUTES[RESULT], None)
        if text is None:
            return
        result = decode(text)
        if self._base:
            result = self._base.judged(result)
        self._done += 1
        if self._collector:
            # Made when the first case ends: all workers have collected by then.
            self._left = self._left or TimeLeft(self._collector.recorded_seconds(), self._workers)
            self._left.ended(result.case, result.seconds)
        self._unexpected += not result.expected
        if self._verbosity is Verbosity.VERBOSE:
            self._print(result)
        elif not result.expected:
            self._held.append(result)
        if self._done != self._total:  # otherwise the summary follows at once
            self._name_failures()
            self._update()

    def pytest_sessionfinish(self) -> None:
        """Stop the bar."""
        if self._bar:
            self._refresh()
            self._bar.stop()

    def _start(self) -> None:
        if self._total or self._collector is None or self._verbosity is Verbosity.QUIET:
            return
        self._total = self._collector.selected
        self._begin = self._shown = time.monotonic()
        if not self._console.is_terminal:
            return
        self._bar = bars.Progress(
            bars.BarColumn(bar_width=None),
            bars.MofNCompleteColumn(),
            bars.TextColumn("{task.fields[note]}"),
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._bar.add_task("", total=self._total, note="")
        self._bar.start()

    def _name_failures(self) -> None:
        if time.monotonic() - self._begin < SHORT_SECONDS:
            return
        for result in self._held:
            self._print(result)
        self._held.clear()

    def _print(self, result: CaseResult) -> None:
        if self._verbosity is Verbosity.QUIET:
            return
        line = Text(f"{result.verdict}: {result.case}", "" if result.expected else "bold red")
        if self._verbosity is Verbosity.VERBOSE:
            known = f", known: {result.known}" if result.known else ""
            line.append(f"  {duration(result.seconds)}{known}", "bright_black")
        (self._bar.console if self._bar else self._console).print(line, soft_wrap=True)

    def _update(self) -> None:
        if not self._total:
            return
        now = time.monotonic()
        if now - self._shown < (BAR_EVERY_SECONDS if self._bar else LINE_EVERY_SECONDS):
            return
        self._shown = now
        if self._bar:
            self._refresh()
        else:
            self._console.print(f"{self._done}/{self._total} cases, {self._note()}")

    def _refresh(self) -> None:
        assert self._bar is not None, "only called while the bar is shown"
        self._bar.update(self._task, completed=self._done, note=self._note())
        self._bar.refresh()

    def _note(self) -> str:
        spent = time.monotonic() - self._begin
        left = self._left.seconds(spent) if self._left else 0.0
        if self._console.width < NOTE_COLUMNS and self._bar:
            return f"{self._unexpected}{UNEXPECTED} {duration(left)} left"
        what = "worse" if self._base else "not expected"
        return f"{self._unexpected} {what}, {duration(spent)}, {duration(left)} left"
