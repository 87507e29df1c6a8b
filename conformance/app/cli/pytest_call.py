"""Calls pytest on the suite, unaffected by the user's own pytest configuration."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter

from conformance.app import pytest_plugin
from conformance.app.pytest_plugin.options import GivenSettings
from conformance.app.run_settings import Settings
from conformance.core.signals import end_children

_ENVIRONMENT = {
    "PYTEST_ADDOPTS": None,
    "PYTEST_PLUGINS": None,
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
}


def call_pytest(
    settings: Settings, *, workers: int, exitfirst: bool, plugins: Sequence[object] = ()
) -> tuple[int, str]:
    """Run the suite; return the exit code and pytest's own output.

    Args:
        settings: what to run and how to judge it.
        workers: processes; 0 runs all cases in this process.
        exitfirst: stop at the first item that fails.
        plugins: objects with pytest hooks, for this process only.
    """
    terminal = TerminalCapture()
    arguments = _pytest_options(workers, exitfirst=exitfirst)
    with _environment(_ENVIRONMENT):
        try:
            code = pytest.main(arguments, plugins=[terminal, GivenSettings(settings), *plugins])
        except KeyboardInterrupt:  # pytest does not handle it while it starts or ends
            end_children()
            code = pytest.ExitCode.INTERRUPTED
    return int(code), terminal.text


class TerminalCapture:
    """Keeps pytest's own terminal output, to show it if pytest itself fails."""

    def __init__(self) -> None:
        self._buffer = io.StringIO()

    @property
    def text(self) -> str:
        """All of pytest's output."""
        return self._buffer.getvalue()

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Let pytest's reporter write to memory."""
        manager = config.pluginmanager
        reporter = manager.get_plugin("terminalreporter")
        if reporter is not None:
            manager.unregister(reporter)
            manager.register(TerminalReporter(config, self._buffer), "terminalreporter")


def _pytest_options(workers: int, *, exitfirst: bool) -> list[str]:
    options = [
        "--pyargs",
        "conformance.suite",
        f"--rootdir={Path(pytest_plugin.SUITE_FILE).parent}",
        f"-c{os.devnull}",
        "--noconftest",
        "--assert=plain",
        "-pno:cacheprovider",
        "-ptimeout",
        f"-p{pytest_plugin.__name__}",
    ]
    if workers:
        options += ["-pxdist", f"-n{workers}", "--dist=loadgroup"]
    return options + (["-x"] if exitfirst else [])


@contextlib.contextmanager
def _environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables (``None``: unset) and restore them; workers inherit them."""
    before = {name: os.environ.get(name) for name in changes}
    try:
        _set_environment(changes)
        yield
    finally:
        _set_environment(before)


def _set_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
