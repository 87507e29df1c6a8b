"""The pytest plugin: every case is a test item, every unexpected verdict a failed test.

Every pytest in an environment with this package loads it, so this module imports nothing heavy and
its hooks return at once unless the suite is run. ``items`` makes and runs each case;
``result_collector`` (in the reporting process) gets its result.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conformance.app.pytest_plugin import options
from conformance.app.pytest_plugin.options import GOLDEN_NODE, SUITE_NODE

if TYPE_CHECKING:
    from conformance.app.pytest_plugin.result_collector import ResultCollector

SUITE_FILE = Path(__file__).parents[2] / "suite" / "cases.py"
GOLDEN_FILE = SUITE_FILE.with_name("goldens.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the plugin's options and ini settings."""
    options.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker; in the reporting process, add the result collector.

    Raises:
        pytest.UsageError: a required package is missing.
    """
    config.addinivalue_line(
        "markers", "conformance: a case of the conformance suite (engine/family/scenario/...)"
    )
    if options.suite_selected(config) and not options.is_worker(config):
        try:
            collector = importlib.import_module("conformance.app.pytest_plugin.result_collector")
        except ImportError as error:
            said = importlib.import_module("conformance.core.unavailable").lacking_import(error)
            raise pytest.UsageError(said) from error
        collector.install(config)


def pytest_sessionstart(session: pytest.Session) -> None:
    """In a worker: write a crash's traceback to a file (pytest's own setting precedes this)."""
    if options.suite_selected(session.config) and options.is_worker(session.config):
        worker_crashes = importlib.import_module("conformance.app.pytest_plugin.worker_crashes")
        worker_crashes.use_crash_file(session.config)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a worker: share the kernels that it compiled, before it reports its end."""
    if kernels := session.config.stash.get(options.OWN_KERNELS, None):
        kernels.join()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None]:
    """If the command ``pytest`` runs the suite, continue in a watched child process."""
    if options.suite_selected(early_config):
        importlib.import_module("conformance.app.pytest_plugin.command").go_on_in_child(
            early_config
        )
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, Any]:
    """With ``-n``: ``--dist loadgroup`` by default, so a group stays on one worker."""
    if options.suite_selected(config):
        options.use_devices(config)
        options.prepare_distribution(config)
        if not options.is_worker(config):
            with contextlib.suppress(ImportError):  # what is missing is reported later
                importlib.import_module("conformance.core.kernel_header").compile_header()
    code = yield
    if (end := config.stash.get(options.END, None)) is not None:
        end.note(int(code or 0))
    return code


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give a worker the settings, including later changes of pytest's own."""
    if options.suite_selected(node.config):
        options.give_settings(node)
    node.workerinput[options.LOADGROUP] = node.config.getoption("dist") == "loadgroup"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A scheduler that never gives a case that crashed its worker to another worker."""
    collector = find_collector(config)
    if collector is None or config.getoption("dist") != "loadgroup":
        return None
    distribution = importlib.import_module("conformance.app.pytest_plugin.distribution")
    return distribution.FamilyScheduling(config, log, collector.setup, collector.processes.retired)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect cases from the suite's files, and goldens if there is a folder of them."""
    if file_path.name == GOLDEN_FILE.name and file_path == GOLDEN_FILE:
        golden_items = importlib.import_module("conformance.app.pytest_plugin.golden_items")
        if not golden_items.selected(parent.config):
            return None
        module: pytest.Collector = golden_items.GoldenModule.from_parent(
            parent, path=file_path, nodeid=GOLDEN_NODE
        )
        return module
    if file_path.name != SUITE_FILE.name or file_path != SUITE_FILE:
        return None
    items = importlib.import_module("conformance.app.pytest_plugin.items")
    collector: pytest.Collector = items.SuiteFile.from_parent(
        parent, path=file_path, nodeid=SUITE_NODE
    )
    return collector


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Attach the result to the report, which a worker sends to the reporting process."""
    report = yield
    if report.when == "call":
        for key in options.ATTRIBUTES:
            text = item.stash.get(key, "")
            if text:
                setattr(report, options.ATTRIBUTES[key], text)
    return report


def find_collector(config: pytest.Config) -> ResultCollector | None:
    """The result collector of this run; ``None`` in workers and if the suite is not run."""
    found: ResultCollector | None = config.pluginmanager.get_plugin(options.COLLECTOR)
    return found
