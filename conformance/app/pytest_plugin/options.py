"""The plugin's options, and the values of pytest's own options while the suite runs."""

from __future__ import annotations

import dataclasses
import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conformance.core.devices import chosen, see
from conformance.core.errors import ConformanceError
from conformance.core.kernel_caches import OwnKernels
from conformance.core.library_paths import chosen_options
from conformance.core.tier_names import FULL, usual_tier
from conformance.core.watched_child import End
from conformance.tools.checkpoints.given import Given

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

TIMEOUT_SECONDS = 300.0
WORKER_RESTARTS = 10_000
_MOST = 1e6  # seconds or GB

_MANY = (
    ("engine", "GLOB", "Engines to run (default: mlx_lm)."),
    ("family", "GLOB", "Model families to run (default: all that an engine can decode)."),
    ("scenario", "GLOB", "Scenarios to run (default: all that an engine can express)."),
    ("dtype", "DTYPE", "Working dtypes: float32 (default), float16, bfloat16."),
    ("seed", "N", "Seeds of prompts and weights (default: 0)."),
    ("family-file", "FILE", "A family of your own, from its JSON file."),
    ("plugin", "MODULE", "A module with hooks, in this folder or installed."),
)
_ONE = (
    ("json", "FILE", "Write results as JSON lines, one for each case."),
    ("expectations", "DIR", "Folder of expectations (known defects)."),
    (
        "golden",
        "DIR",
        "Folder of goldens to compare with, and to write with --snapshot-update (default: "
        "golden/ in the folder where pytest starts, if it exists).",
    ),
    ("model", "FOLDER", "Run the cases on this real checkpoint instead of tiny families."),
    ("prompts", "FILE", "File of texts to cut prompts of --conformance-model from, one per line."),
    ("cache-dir", "DIR", "Folder that keeps single streams of --conformance-model between runs."),
    ("cases", "FILE", "Run only the cases in this file, one id per line; all must be selected."),
    (
        "tier",
        "TIER",
        "How much of the ladder to run: quick, default or full (default: full for named families "
        "and scenarios, else default).",
    ),
    ("shard", "K/N", "Run only the K-th of N parts; all cases of a family are in one part."),
    (
        "timeout",
        "SECONDS",
        f"A case that takes longer gets the verdict 'hang' (default: {TIMEOUT_SECONDS:.0f}; "
        "needs pytest-timeout; 0: no limit).",
    ),
    (
        "memory",
        "GB",
        "A process that exceeds this is killed, and its case gets the verdict 'crash' (default: "
        "its part of the machine's memory; 0: no limit).",
    ),
    (
        "devices",
        "N|LIST|all",
        "NVIDIA GPUs to use: a number, a comma-separated list ('0,3', '2,'), or all. Each worker "
        "gets one of them in turn.",
    ),
)
_FLAGS = (
    ("keep", "Store the results in the user's cache, where `conformance run` can reuse them."),
    ("no-expectations", "Judge every case as if no defect were known."),
    ("no-mends", "Do not rerun cases with known defects with those defects mended."),
    ("trust-remote-code", "Allow running Python files in the folder of --conformance-model."),
    ("force", "Run --conformance-model even if it exceeds the free memory."),
    ("no-oracle-cache", "Compute all single streams and their noise from scratch, and store none."),
)


@dataclass(frozen=True)
class Settings:
    """The options from the command line or, if not given there, from the ini file."""

    engines: tuple[str, ...]
    families: tuple[str, ...]
    scenarios: tuple[str, ...]
    dtypes: tuple[str, ...]
    seeds: tuple[str, ...]
    family_files: tuple[Path, ...]
    json: Path | None
    expectations: Path | None
    use_expectations: bool
    timeout: float
    checkpoint: Given | None = None
    shard: str = ""
    tier: str = FULL
    memory: float | None = None
    cases: Path | None = None
    keep: bool = False
    plugins: tuple[str, ...] = ()
    oracle_cache: bool = True
    mends: bool = True
    devices: tuple[str, ...] = ()

    @property
    def family_options(self) -> tuple[str, ...]:
        """Options that name the user's own families and plugins."""
        found = [text for name in self.plugins for text in ("-p", name)]
        found += [text for path in self.family_files for text in ("--family-file", str(path))]
        return tuple(found)

    @property
    def rerun_options(self) -> tuple[str, ...]:
        """Options that ``conformance show`` needs to run the same case."""
        found = list(self.family_options)
        found += self.checkpoint.options if self.checkpoint else ()
        found += chosen_options()
        if self.expectations:
            found += ["--expectations", str(self.expectations)]
        return (*found, *(() if self.use_expectations else ("--no-expectations",)))


_SETTINGS = pytest.StashKey[Settings]()


def add_options(parser: pytest.Parser) -> None:
    """Declare each option, and its ini setting of the same name with underscores."""
    group = parser.getgroup("conformance", "batched decoding against single stream")
    for name, metavar, text in _MANY:
        group.addoption(
            f"--conformance-{name}",
            action="append",
            default=None,
            metavar=metavar,
            help=f"{text} May be repeated.",
        )
        parser.addini(_dest(name), f"{text} Separated by spaces.", type="args", default=[])
    for name, metavar, text in _ONE:
        group.addoption(f"--conformance-{name}", default=None, metavar=metavar, help=text)
        parser.addini(_dest(name), text, default="")
    for name, text in _FLAGS:
        group.addoption(f"--conformance-{name}", action="store_true", default=False, help=text)


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

    def many(name: str) -> tuple[str, ...]:
        return tuple(config.getoption(_dest(name)) or config.getini(_dest(name)))

    def path(text: str) -> Path:
        return (config.invocation_params.dir / Path(text).expanduser()).absolute()

    def one(name: str) -> str:
        return str(config.getoption(_dest(name)) or config.getini(_dest(name)) or "")

    def number(name: str, unit: str) -> float | None:
        wrong = f"--conformance-{name}: {one(name)!r} is no number of {unit}"
        try:
            found = float(one(name)) if one(name) else None
        except ValueError as error:
            raise pytest.UsageError(wrong) from error
        if found is not None and not 0 <= found <= _MOST:  # inf and nan are refused too
            raise pytest.UsageError(wrong)
        return found

    timeout = number("timeout", "seconds")
    named = any((many("family"), many("scenario"), one("model")))
    return Settings(
        engines=many("engine"),
        families=many("family"),
        scenarios=many("scenario"),
        dtypes=many("dtype"),
        seeds=many("seed"),
        family_files=tuple(path(text) for text in many("family-file")),
        json=path(one("json")) if one("json") else None,
        expectations=path(one("expectations")) if one("expectations") else None,
        use_expectations=not config.getoption("conformance_no_expectations"),
        timeout=TIMEOUT_SECONDS if timeout is None else timeout,
        checkpoint=Given(
            path(one("model")),
            prompts=path(one("prompts")) if one("prompts") else None,
            cache=path(one("cache-dir")) if one("cache-dir") else None,
            trusted=config.getoption("conformance_trust_remote_code"),
            force=config.getoption("conformance_force"),
        )
        if one("model")
        else None,
        shard=one("shard"),
        tier=one("tier") or usual_tier(named=named),
        cases=path(one("cases")) if one("cases") else None,
        keep=config.getoption("conformance_keep"),
        memory=number("memory", "GB"),
        plugins=many("plugin"),
        oracle_cache=not config.getoption("conformance_no_oracle_cache"),
        mends=not config.getoption("conformance_no_mends"),
        devices=_devices(one("devices")),
    )


def _devices(text: str) -> tuple[str, ...]:
    try:
        return chosen(text) if text else ()
    except ConformanceError as error:
        raise pytest.UsageError(str(error)) from error


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


def _dest(name: str) -> str:
    return f"conformance_{name.replace('-', '_')}"
