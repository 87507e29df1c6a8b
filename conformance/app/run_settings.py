"""The options of a run, each declared once: for the command line, for pytest, and as settings.

``app/cli/options.py`` makes click's options of them, ``app/pytest_plugin/options.py`` pytest's.
Every pytest imports this module, so it imports nothing heavy.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.core import named_server
from conformance.core.library_paths import chosen_options
from conformance.core.names import FULL, usual_tier
from conformance.tools.checkpoints.given import Given

TIMEOUT_SECONDS = 300.0


class Kind(enum.Enum):
    """What an option's value is."""

    TEXT = enum.auto()
    FLAG = enum.auto()
    DTYPE = enum.auto()
    SEED = enum.auto()
    TIER = enum.auto()
    SECONDS = enum.auto()
    GIGABYTES = enum.auto()
    PATH = enum.auto()
    FILE = enum.auto()
    FOLDER = enum.auto()
    NEW_FILE = enum.auto()
    NEW_FOLDER = enum.auto()

    @property
    def unit(self) -> str:
        """The unit of a number; empty if it is none."""
        return {Kind.SECONDS: "seconds", Kind.GIGABYTES: "GB"}.get(self, "")

    @property
    def is_path(self) -> bool:
        """Whether the value is a path."""
        return self in (Kind.PATH, Kind.FILE, Kind.FOLDER, Kind.NEW_FILE, Kind.NEW_FOLDER)


@dataclass(frozen=True)
class Option:
    """An option of a run.

    Attributes:
        name: without dashes; pytest's begins with ``--conformance-``.
        metavar: what stands for the value in help texts; empty for a flag.
        plural: the key of its values for ``settings_of``, if it may be repeated.
        short: the command line's second name.
    """

    name: str
    metavar: str
    text: str
    kind: Kind = Kind.TEXT
    default: float | None = None
    plural: str = ""
    short: str = ""

    @property
    def key(self) -> str:
        """The key of its value for ``settings_of``."""
        return self.plural or self.name.replace("-", "_")


OPTIONS = (
    Option(
        "engine",
        "GLOB",
        "Engines to run; may be repeated. Default: mlx_lm and mlx_vlm.",
        plural="engines",
    ),
    Option(
        "family",
        "GLOB",
        "Model families to run, for example 'qwen3*'; may be repeated. Default: all.",
        plural="families",
    ),
    Option(
        "scenario",
        "GLOB",
        "Scenarios to run; may be repeated. Default: all that an engine can express.",
        plural="scenarios",
    ),
    Option(
        "dtype",
        "DTYPE",
        "Working dtype; may be repeated. Default: float32, which best separates defects from "
        "rounding.",
        Kind.DTYPE,
        plural="dtypes",
    ),
    Option(
        "seed",
        "N",
        "Seed of weights and prompts; may be repeated. Default: 0.",
        Kind.SEED,
        plural="seeds",
    ),
    Option(
        "family-file",
        "FILE",
        "A family of your own: a tiny config.json with a 'conformance' section. May be repeated.",
        Kind.FILE,
        plural="family_files",
    ),
    Option(
        "plugin",
        "MODULE",
        "A module with hooks, in this folder or installed. May be repeated.",
        short="-p",
        plural="plugins",
    ),
    Option(
        "json",
        "FILE",
        "Write the results as JSON lines, one for each case. An interrupted run leaves "
        "FILE.partial instead.",
        Kind.NEW_FILE,
    ),
    Option(
        "expectations",
        "DIR",
        "Folder of expectations (known defects), instead of the project's own.",
        Kind.FOLDER,
    ),
    Option(
        "model",
        "FOLDER",
        "Run the cases on a real checkpoint: config.json, safetensors, tokenizer. Default dtype: "
        "the checkpoint's own.",
        Kind.PATH,
    ),
    Option(
        "prompts",
        "FILE",
        "File of texts to cut prompts from, one per line. Default: a dozen built-in ones.",
        Kind.NEW_FILE,
    ),
    Option(
        "cache-dir",
        "DIR",
        "Folder that keeps single streams of checkpoints between runs. Default: mlx-conformance in "
        "the user's cache.",
        Kind.NEW_FOLDER,
    ),
    Option(
        "tier",
        "TIER",
        "How much of the ladder to run. quick: the fewest schedules that catch almost all that the "
        "ladder catches. default: each rung; scenarios that test the engine on one family of each "
        "kind. full: all. Default: full for named families and scenarios, else default.",
        Kind.TIER,
    ),
    Option(
        "shard",
        "K/N",
        "Run only the K-th of N parts, for example 2/4. All cases of a family are in one part; the "
        "N parts together are the whole run.",
    ),
    Option(
        "timeout",
        "SECONDS",
        "A case that takes longer gets the verdict 'hang'; marathon, distributions and "
        "traffic_leaves may take four times as long. 0: no limit.",
        Kind.SECONDS,
        default=TIMEOUT_SECONDS,
    ),
    Option(
        "memory",
        "GB",
        "A worker process that exceeds this is killed, and its case gets the verdict 'crash'. "
        "Default: its part of 80 % of the machine's memory, but at least 2 GiB. 0: no limit.",
        Kind.GIGABYTES,
    ),
    Option(
        "devices",
        "N|LIST|all",
        "NVIDIA GPUs to use: a number, a comma-separated list ('0,3', '2,'), or all. Each worker "
        "gets one of them in turn (CUDA_VISIBLE_DEVICES). Default: all workers use the first GPU.",
    ),
    Option(
        "no-expectations",
        "",
        "Judge as if no defect were known: every verdict but exact and tie fails.",
        Kind.FLAG,
    ),
    Option(
        "no-mends",
        "",
        "Do not rerun cases with known defects with those defects mended. Workloads then fail.",
        Kind.FLAG,
    ),
    Option(
        "trust-remote-code",
        "",
        "Allow running Python files in the checkpoint's folder.",
        Kind.FLAG,
    ),
    Option(
        "force",
        "",
        "Run the checkpoint even if it exceeds the free memory.",
        Kind.FLAG,
    ),
    Option(
        "no-oracle-cache",
        "",
        "Compute all single streams and their noise from scratch, and store none. Default: they "
        "are kept for tiny families, in mlx-conformance in the user's cache.",
        Kind.FLAG,
    ),
)


@dataclass(frozen=True)
class Settings:
    """What to run and how to judge it, as the options say; all defaults are those of the options.

    ``cases`` is a file of case ids: only these are run. With ``keep``, results are stored for later
    runs.
    """

    engines: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    seeds: tuple[str, ...] = ()
    family_files: tuple[Path, ...] = ()
    plugins: tuple[str, ...] = ()
    json: Path | None = None
    expectations: Path | None = None
    use_expectations: bool = True
    mends: bool = True
    checkpoint: Given | None = None
    tier: str = FULL
    shard: str = ""
    timeout: float = TIMEOUT_SECONDS
    memory: float | None = None
    devices: tuple[str, ...] = ()
    oracle_cache: bool = True
    cases: Path | None = None
    keep: bool = False

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
        found += (*chosen_options(), *named_server.options())
        if self.expectations:
            found += ["--expectations", str(self.expectations)]
        flags = {"--no-expectations": self.use_expectations, "--no-mends": self.mends}
        return (*found, *(name for name, off in flags.items() if not off))


_OF_CHECKPOINT = ("model", "prompts", "cache_dir", "trust_remote_code", "force", "golden")
_WITHOUT = {
    "no_expectations": "use_expectations",
    "no_mends": "mends",
    "no_oracle_cache": "oracle_cache",
}


def settings_of(given: Mapping[str, Any]) -> Settings:
    """The settings for values of options, by ``Option.key``; an option may be absent.

    ``golden`` is the folder of goldens of a checkpoint.
    """
    values = {key: _absolute(value) for key, value in given.items() if value is not None}
    model, prompts, cache, trusted, force, golden = (values.pop(k, None) for k in _OF_CHECKPOINT)
    if model is not None:
        values["checkpoint"] = Given(
            model, prompts, cache, trusted=bool(trusted), force=bool(force), golden=golden
        )
    if "tier" in given:
        named = any(values.get(key) for key in ("families", "scenarios", "checkpoint"))
        values["tier"] = values.get("tier") or usual_tier(named=named)
    for option, field in _WITHOUT.items():
        values[field] = not values.pop(option, False)
    values["seeds"] = tuple(map(str, values.get("seeds", ())))
    return Settings(**values)


def _absolute(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_absolute, value))
    return value.absolute() if isinstance(value, Path) else value
