"""The plugin's options, and the values of pytest's own options while the suite runs."""

from __future__ import annotations

import dataclasses
import math
import os
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from conformance.app.run_settings import OPTIONS, Kind, Option, Settings, settings_of
from conformance.core.devices import chosen, see
from conformance.core.errors import ConformanceError
from conformance.core.kernel_caches import OwnKernels
from conformance.core.watched_child import End

COLLECTOR = "conformance-result-collector"
LOADGROUP = "conformance_loadgroup"
DEVICE = "conformance_device"
KERNELS = "conformance_kernels"
"""Keys of a worker's input: its GPU, and its folder of compiled kernels."""
END = pytest.StashKey[End]()
"""Set in a run that a parent process watches; reports the end of the run to the parent."""
RESULT = pytest.StashKey[str]()
PROBLEM = pytest.StashKey[str]()
MODULES = pytest.StashKey[str]()
OWN_KERNELS = pytest.StashKey[OwnKernels]()
"""The kernel cache of a worker."""
ATTRIBUTES = {
    RESULT: "conformance_result",
    PROBLEM: "conformance_problem",
    MODULES: "conformance_modules",
}

_OF_REPORTER = "conformance_settings"
"""Key of a worker's input: the pickled settings."""

WORKER_RESTARTS = 10_000
_MOST = 1e6  # seconds or GB

_OWN = (
    Option(
        "golden",
        "DIR",
        "Folder of goldens to compare with, and to write with --snapshot-update (default: "
        "golden/ in the folder where pytest starts, if it exists).",
    ),
    Option(
        "cases",
        "FILE",
        "Run only the cases in this file, one id per line; all must be selected.",
        Kind.FILE,
    ),
    Option(
        "keep",
        "",
        "Store the results in the user's cache, where `conformance run` can reuse them.",
        Kind.FLAG,
    ),
)
"""Options that the command line lacks."""

_SETTINGS = pytest.StashKey[Settings]()


def add_options(parser: pytest.Parser) -> None:
    """Declare each option, and its ini setting of the same name with underscores."""
    group = parser.getgroup("conformance", "batched decoding against single stream")
    for option in (*OPTIONS, *_OWN):
        name, text = f"--conformance-{option.name}", option.text
        if option.default is not None:
            text += f" Default: {option.default:g}."
        if option.kind is Kind.FLAG:
            group.addoption(name, action="store_true", default=False, help=text)
            continue
        action = "append" if option.plural else "store"
        group.addoption(name, action=action, default=None, metavar=option.metavar, help=text)
        if option.plural:
            text = f"{text} Separated by spaces."
            parser.addini(_dest(option), text, type="args", default=[])
        else:
            parser.addini(_dest(option), text, default="")


class GivenSettings:
    """A plugin for a pytest call made by a command, which passes finished settings."""

    def __init__(self, given: Settings) -> None:
        self._given = given

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self, early_config: pytest.Config) -> None:
        """Store the settings before anything reads them."""
        early_config.stash[_SETTINGS] = self._given


def give_settings(node: Any) -> None:
    """Give a starting worker this process's settings, without ``devices``: it gets one GPU."""
    given = dataclasses.replace(settings(node.config), devices=())
    node.workerinput[_OF_REPORTER] = pickle.dumps(given)


def settings(config: pytest.Config) -> Settings:
    """The plugin's settings of this run; paths are relative to pytest's start folder.

    Raises:
        pytest.UsageError: the timeout is not a number, or there is no such GPU.
    """
    if _SETTINGS not in config.stash:
        given = getattr(config, "workerinput", {}).get(_OF_REPORTER)
        config.stash[_SETTINGS] = pickle.loads(given) if given else _read(config)
    return config.stash[_SETTINGS]


def _read(config: pytest.Config) -> Settings:
    """Read the settings from pytest's own options and ini file."""
    # The folder of goldens is read by those who compare goldens (``golden_items``).
    own = [option for option in _OWN if option.name != "golden"]
    values = {option.key: _value(config, option) for option in (*OPTIONS, *own)}
    try:
        values["devices"] = chosen(values["devices"]) if values["devices"] else ()
    except ConformanceError as error:
        raise pytest.UsageError(str(error)) from error
    return settings_of(values)


def _value(config: pytest.Config, option: Option) -> Any:
    """The option's value from the command line, else from the ini file; ``None`` without one."""
    value = config.getoption(_dest(option))
    if option.kind is Kind.FLAG:
        return value
    value = value or config.getini(_dest(option))
    if option.plural:
        return tuple(_typed(config, option, text) for text in value)
    return _typed(config, option, str(value)) if value else None


def _typed(config: pytest.Config, option: Option, text: str) -> str | float | Path:
    if option.kind.is_path:
        return config.invocation_params.dir / Path(text).expanduser()
    if not option.kind.unit:
        return text
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found <= _MOST:  # inf and nan are refused too
        raise pytest.UsageError(
            f"--conformance-{option.name}: {text!r} is no number of {option.kind.unit}"
        )
    return found


def suite_selected(config: pytest.Config) -> bool:
    """Whether an argument (or ``testpaths``) names the suite, as a module or as a path."""
    # Before conftest files are read, ``args`` is empty.
    named = config.args or config.known_args_namespace.file_or_dir or config.getini("testpaths")
    names = (str(argument).replace("\\", "/").replace("/", ".") for argument in named)
    return any("conformance.suite" in name for name in names)


def is_worker(config: pytest.Config) -> bool:
    """Whether this process only runs items for another process, which reports them."""
    return hasattr(config, "workerinput")


def use_devices(config: pytest.Config) -> None:
    """Hide all GPUs but the chosen ones, or a worker's one GPU; call it before mlx is imported.

    A worker compiles its kernels in its own folder.

    Raises:
        pytest.UsageError: there is no such GPU.
    """
    if is_worker(config):
        given = config.workerinput  # type: ignore[attr-defined]
        if name := given.get(DEVICE):
            see([name])
        if folder := given.get(KERNELS):
            config.stash[OWN_KERNELS] = OwnKernels(Path(folder))
        return
    if names := settings(config).devices:
        see(names)


def prepare_distribution(config: pytest.Config) -> None:
    """Adapt pytest-xdist's options to the suite, except those that the user has set."""
    option: Any = config.option
    if is_worker(config):
        option.loadgroup = config.workerinput[LOADGROUP]  # type: ignore[attr-defined]
        return
    if not getattr(option, "numprocesses", None) or option.dist not in ("no", "loadgroup"):
        return
    option.dist = "loadgroup"
    # Workers inherit it: processes that each use every core slow each other down.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # Otherwise a worker would first import from the current folder, which may be a checkpoint.
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    # The suite sets the order itself, and a crash is a verdict: the run continues.
    option.loadscopereorder = False
    if option.maxworkerrestart is None:
        option.maxworkerrestart = str(WORKER_RESTARTS)


def _dest(option: Option) -> str:
    return f"conformance_{option.name.replace('-', '_')}"


# Node ids of the suite: pytest's names for cases, here and in workers ----------------------------

SUITE_NODE = "conformance.suite.cases"
GOLDEN_NODE = "conformance.suite.goldens"

_GOLDEN = re.compile(re.escape(GOLDEN_NODE) + r"::golden\[([^/\]]+/[^/\]]+)\]")


def case_of(nodeid: str) -> str | None:
    """The case id within a node id, to which xdist may have added a group; ``None`` without one."""
    node, _, name = nodeid.partition("::")
    case = name.partition("@")[0]
    return case if node == SUITE_NODE and case.count("/") == 4 else None


def golden_of(nodeid: str) -> str | None:
    """Library and family of a golden's node id, ``mlx_lm/llama``; ``None`` for other node ids."""
    found = _GOLDEN.match(nodeid)
    return found[1] if found else None
