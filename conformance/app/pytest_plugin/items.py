"""Cases as pytest items."""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import json
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.app.pytest_plugin.device_memory import after_refusal, by_itself, lost, refusal
from conformance.app.pytest_plugin.options import MODULES, OWN_KERNELS, PROBLEM, RESULT
from conformance.app.pytest_plugin.own_process import ends_process, played_apart
from conformance.app.pytest_plugin.setup import Setup, find_setup
from conformance.app.pytest_plugin.worker_crashes import (
    TAINTED,
    hang,
    harness_failure,
    traceback_target,
    write_to_real_stderr,
)
from conformance.backend.one_cpu import on_one_cpu
from conformance.core.errors import ConformanceError
from conformance.core.failures import device_refused
from conformance.core.verdict import CaseId, CaseResult, encode
from conformance.report import failure_message, properties
from conformance.run.coverage import account

_WATCHDOG_FACTOR = 1.5
"""A stuck process that no signal reaches is ended after this many timeouts."""


class Unexpected(Exception):  # noqa: N818
    """A case has an unexpected verdict; the text is the whole message."""


class SuiteFile(pytest.File):
    """All selected cases, and in a whole run the coverage of each library."""

    def collect(self) -> Iterator[pytest.Item]:
        """Items, a family's together, in the best order for running."""
        try:
            setup = find_setup(self.config)
            for case in setup.cases:
                yield CaseItem.from_parent(self, name=str(case), case=case, setup=setup)
            if setup.selection.leads:
                for library in setup.libraries:
                    yield CoverageItem.from_parent(
                        self, name=f"coverage[{library}]", library=library, setup=setup
                    )
        except ConformanceError as error:
            raise self.CollectError(str(error)) from error


class SuiteItem(pytest.Item):
    """The common part of both kinds of items."""

    def __init__(self, *, setup: Setup, group: str, timeout: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.setup_ = setup
        self.seconds = timeout
        manager = self.config.pluginmanager
        timed = manager.hasplugin("timeout") and not self.config.getoption("timeout", None)
        for mark in _marks(group, timeout if timed else None):
            self.add_marker(mark)

    def reportinfo(self) -> tuple[Any, None, str]:
        """The item's name in reports and JUnit files."""
        return self.path, None, self.name

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """A verdict's message unchanged; a traceback only for internal errors."""
        if isinstance(excinfo.value, Unexpected):
            cause = excinfo.value.__cause__
            trace = "" if cause is None else "".join(traceback.format_exception(cause))
            return f"{excinfo.value}\n\n{trace}".rstrip()
        return super().repr_failure(excinfo, style)


class CaseItem(SuiteItem):
    """One case; it fails if its verdict is unexpected."""

    def __init__(self, *, case: CaseId, setup: Setup, **kwargs: Any) -> None:
        group, timeout = setup.group_of(case), setup.timeout_of(case)
        super().__init__(setup=setup, group=group, timeout=timeout, **kwargs)
        self.case = case
        self._replayed = False

    def runtest(self) -> None:
        """Run the case; its result goes on the report.

        Raises:
            Unexpected: the verdict is unexpected.
        """
        started = time.perf_counter()
        error: Exception | None = None
        try:
            with _watchdog(self), on_one_cpu():
                result = self._played()
        except pytest.fail.Exception as stopped:
            if not str(stopped).startswith("Timeout"):
                raise
            self._taint()
            seconds = time.perf_counter() - started
            found = hang(self.setup_, self.case, seconds, _interrupted_at(stopped))
            result = self.setup_.judge.compared(found)
        except Exception as caught:  # noqa: BLE001  (a defect of the harness is reported as one)
            error = caught
            seconds = time.perf_counter() - started
            # Never judged: a crash of the harness is not a known crash of the library.
            result = harness_failure(self.setup_, self.case, caught, seconds)
        if self.setup_.session.tainted:
            self._taint()
        for line in self.setup_.take_reports():
            write_to_real_stderr(self.config, f"conformance: {line}\n")
        here = error is None and not self._replayed
        if here:
            diagnosed = self._diagnosed(result)
            if diagnosed is not result and lost():
                self._taint()
            result = diagnosed
            self._record_modules(result)
        self.stash[RESULT] = encode(result)
        self.user_properties += properties(result)
        if not result.expected:
            message = failure_message(result, options=self.setup_.settings.rerun_options)
            raise Unexpected(message) from error

    def _played(self) -> CaseResult:
        """The case as released, judged, and with its known defects mended.

        If the device is lost, possibly by an earlier case, or refuses something, this result is
        discarded: the case is run again in processes of its own, and this process is replaced.
        """
        setup, apart = self.setup_, ends_process(self.setup_, self.case)
        refused = ""
        try:
            released = setup.judge.played(
                self.case,
                lambda: (
                    played_apart(setup, self.case, self.config)
                    if apart
                    else setup.session.run(self.case)
                ),
            )
            refused = refusal(released)
            if not (refused or lost(None if apart else released)):
                result = setup.judge.judged(self.case, released)
                refused = refusal(result)
                if not (refused or lost(None if apart else result)):
                    return result
        except Exception as error:
            refused = str(error) if device_refused(str(error)) else ""
            if not (refused or lost()):
                raise
        self._taint()
        self._replayed = True
        refused = by_itself(refused)
        if refused and (kernels := self.config.stash.get(OWN_KERNELS, None)):
            kernels.renew()
        released = played_apart(setup, self.case, self.config)
        result = played_apart(setup, self.case, self.config, released)
        return after_refusal(result, refused) if refused else result

    def _diagnosed(self, result: CaseResult) -> CaseResult:
        """The result diagnosed, or as it is if the time is up: its verdict is known."""
        try:
            return self.setup_.judge.diagnosed(self.case, result)
        except pytest.fail.Exception as stopped:
            if not str(stopped).startswith("Timeout"):
                raise
            self._taint()
            return result

    def _record_modules(self, result: CaseResult) -> None:
        """Report what the case depends on, so that its result can be reused."""
        setup = self.setup_
        if not setup.settings.keep or setup.settings.checkpoint is not None:
            return
        modules = setup.recorder.modules(setup.session, self.case, result)
        if modules is not None:
            self.stash[MODULES] = json.dumps(modules)

    def _taint(self) -> None:
        """Replace a worker, since loaded objects may be incomplete and threads may be left."""
        self.setup_.forget_session()
        self.config.stash[TAINTED] = True


class CoverageItem(SuiteItem):
    """Fails if a library ships a model module without a family or an exclusion."""

    def __init__(self, *, library: str, setup: Setup, **kwargs: Any) -> None:
        super().__init__(setup=setup, group="coverage", timeout=setup.settings.timeout, **kwargs)
        self.library = library

    def runtest(self) -> None:
        """Compare the installed modules with the families.

        Raises:
            Unexpected: some are uncovered.
        """
        problem = account(self.setup_.registry, self.library).problem
        if problem:
            self.stash[PROBLEM] = problem
            raise Unexpected(problem)


@functools.cache
def _marks(group: str, timeout: float | None) -> tuple[pytest.MarkDecorator, ...]:
    """The marks of a group's items, made once: for each new mark pytest reads all declared ones."""
    timed = () if timeout is None else (pytest.mark.timeout(timeout),)
    return (pytest.mark.conformance, pytest.mark.xdist_group(group), *timed)


def _interrupted_at(stopped: BaseException) -> str:
    """The frame in which pytest-timeout's signal interrupted the case, below its handler."""
    frames = traceback.extract_tb(stopped.__traceback__)
    names = [Path(frame.filename).name for frame in frames]
    if "pytest_timeout.py" not in names[1:]:
        return ""
    last = frames[names.index("pytest_timeout.py", 1) - 1]
    return f"in {'/'.join(Path(last.filename).parts[-3:])}:{last.lineno}, {last.name}"


@contextlib.contextmanager
def _watchdog(item: SuiteItem) -> Iterator[None]:
    """End a process that hangs in native code, where pytest-timeout's signal is never handled.

    Entering a debugger cancels it.
    """
    seconds = item.seconds
    file = traceback_target(item.config)
    if file is None or seconds <= 0:
        yield
        return
    faulthandler.dump_traceback_later(seconds * _WATCHDOG_FACTOR, exit=True, file=file)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
