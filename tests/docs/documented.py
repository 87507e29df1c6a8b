"""The commands that the documents show, and how each is made small enough to be run by a test."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "docs/defects/*.md", "expectations/*.md", "tests/*.md")
    for path in ROOT.glob(pattern)
)

# Run elsewhere, or not at all; a test says which, and that none is here that is not in a document.
NOT_RUN = {
    "bash ci/run.sh": "the main job: test_workflows.py looks at what it calls",
    "bash ci/test.sh": "it is what runs this test",
    "bash ci/cuda.sh": "it needs a GPU; test_gpu_page.py runs it with stand-ins",
    "bash ci/metal.sh": "it needs a Mac; test_gpu_page.py runs it with stand-ins",
    "conformance audit tiers --power": "it writes; test_tiers.py of its command runs it",
    "conformance audit power --engine mlx_lm --family llama --every-scenario": "a minute and a "
    "half; test_power.py of its command runs it",
    "conformance audit power --quick --every-scenario": "as with --engine mlx_lm --family llama",
    "conformance audit mutants": "it takes minutes; test_mutants.py of its command runs it",
    "conformance report results.jsonl --mutants": "test_mutants.py of that command runs it",
    "conformance report releases/*.jsonl today.jsonl --site": "as for that of *.jsonl",
    "conformance report *.jsonl --site": "integration/cli/test_report_ci.py runs it",
    "conformance report results.jsonl --costs": "integration/cli/test_report_ci.py runs it",
    "conformance audit power --engine mlx_lm_server": "a quarter of an hour, by hand",
    "conformance audit power --engine mlx_vlm_server": "as for mlx_lm_server",
    "conformance run --engine http": "it needs a server; integration/test_servers.py runs it",
    "conformance run --cluster": "it needs a scheduler; integration/cli/test_cluster.py runs it",
    "conformance explore --cluster": "as for run",
    "conformance report results.jsonl servers.jsonl --costs": "as for that of results.jsonl alone",
    "python ci/fleet.py": "it needs a run; integration/cli/test_cluster.py has one",
    "conformance run --engine '*_server'": "test_contracts.py of the faults plays these cases",
    "conformance run --engine mlx_lm_tensor_parallel": "integration/test_split_models.py runs it",
    "conformance run --engine mlx_lm_pipeline": "as for mlx_lm_tensor_parallel",
    "conformance run --engine mlx_lm_server_tensor_parallel": "as for mlx_lm_server_pipeline",
    "conformance run --engine mlx_lm_server_pipeline": "integration/test_servers.py runs it",
    "conformance run --engine mlx_lm_server": "integration/test_servers.py runs it",
    "conformance run --engine mlx_vlm_server": "integration/test_servers.py runs it",
    "conformance explain --library-path": "test_pull_request.py follows its page",
    "conformance repro --library-path": "as for explain --library-path",
    "conformance repro bounded-cache-keep --issue": "integration/test_repro.py runs it",
    "conformance repro mlx_lm/mamba/ragged/float32/0 --unittest": "integration/test_repro.py runs "
    "it",
    "conformance releases": "it installs releases; tests/integration/test_releases.py runs it",
    "conformance known refresh": "it installs a release; tests/integration/cli/known runs it",
}

CASE, RIGHT = "mlx_lm/afm7/ragged/float32/0", "mlx_lm/llama/ragged/float32/0"
# What a reader puts in, by the word that stands for it.
PLACES = {
    "CASE_ID": CASE,
    "A.jsonl": "old.jsonl",
    "B.jsonl": "new.jsonl",
    "BASE.jsonl": "old.jsonl",
    "path/to/mlx-lm": "mlx-lm",
    "OLD": "old.jsonl",
    "NEW": "new.jsonl",
    "DIR": "vectors",
    "FOLDER": "folder",
    "TRACE.jsonl": "trace.jsonl",
    "path/to/config.json": "config.json",
    "path/to/checkpoint": "checkpoint",
    "OTHER/bin/python": "python",
    "NAME": "llama",
    "NAME.json": "mine.json",
    "qwen3*": "qwen3",
    "llama*": "llama",
    "mlx_lm/NAME/staggered/float32/0": "mlx_lm/llama/staggered/float32/0",
    "CONFIG": "config.json",
    "KEY": "mlx_lm/B6.mask-without-padding",
}
# Options that are added where a document shows more than a test has time for.
SMALLER = (
    ("conformance run", ("--family", "--model"), "--family llama"),
    ("conformance run", ("--scenario", "--model"), "--scenario ragged"),
    ("conformance run --model", (), "--scenario ragged"),
    ("conformance run", ("--engine", "--model"), "--engine mlx_lm"),
    ("conformance run", ("--jobs",), "--jobs 1"),
    (
        "conformance run --engine mlx_lm --family afm7",
        ("--explain-seconds",),
        "--explain-seconds 0",
    ),
    ("conformance new family", (), "--no-ladder"),
    ("conformance show families --cache", (), "--engine mlx_lm --family gemma3*"),
    ("conformance explore", ("--jobs",), "--jobs 1"),
    ("conformance audit power", ("--jobs",), "--jobs 1"),
    ("conformance audit calibrate", (), "--engine mlx_lm"),
    ("conformance run --tier quick", (), "--scenario wide"),
    ("conformance audit caches", ("--class",), "--class mlx_lm.BatchKVCache"),
    ("conformance audit bench", (), "--engine mlx_lm --scenario ragged --skip speedup"),
    ("conformance audit power", ("--family",), "--family llama"),
    ("conformance audit power", ("--fault",), "--fault mlx_lm/B6.mask-without-padding"),
    ("conformance explore", ("--family",), "--family llama"),
    ("conformance explore", ("--fault", "--false-alarms"), "--examples 3"),
    ("conformance explain --faults", (), "--family llama"),
    ("conformance golden check", ("--family", "--files-only"), "--family llama"),
    ("conformance smoke", ("--family",), "--family llama"),
    ("conformance golden export", ("--family",), "--family llama"),
    ("conformance golden export", ("--scenario",), "--scenario equal_length"),
    ("python -m pytest --pyargs conformance.suite", (), "-n 0 --conformance-family llama"),
)
INSTEAD = {
    "--cases": "3",
    "--minutes": "0.02",
    "--examples": "3",
    "--fault": "mlx_lm/B6.mask-without-padding",
    "--faults": "mlx_lm/B6.mask-without-padding",
    "--known": "afm7*",
    "--html": "pages",
    "-k": "goldens",
    "--schedule": "ragged",
}


def by_day(commands):
    """Of each command, in words, the one that is given the most options."""
    chosen = {}
    for words in sorted(commands, key=lambda words: (-len(options(words)), words)):
        start = 2 + (words[1] in ("audit", "golden", "known", "new")) if words[0] != "python" else 3
        chosen.setdefault(" ".join(words[:start]), words)
    return list(chosen.values())


def options(words):
    """Names of the options that a command is given."""
    return {word.partition("=")[0] for word in words if word.startswith("--")}


def shown(path):
    """The commands in a document's blocks, comments taken off, in their order."""
    found, inside = [], False
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            inside = not inside
        elif inside and re.match(r"(conformance|bash|pytest|python|mkdocs) ", line):
            found.append(re.split(r"\s{2,}|\s#", line)[0].strip())
    return found


def all_shown():
    """Each command of all documents once."""
    return sorted({command for path in DOCUMENTS for command in shown(path)})


def not_run(command):
    """Why a command is not run here; empty where it is."""
    return next((why for start, why in NOT_RUN.items() if command.startswith(start)), "")


def small(command):
    """The words of a command with the reader's part put in, small enough for a test."""
    words = [PLACES.get(word, word) for word in shlex.split(command)]
    if words[0] == "pytest":
        words = ["python", "-m", *words]
    for start, unless, more in SMALLER:
        if shlex.join(words).startswith(start) and not set(unless) & set(words):
            words += shlex.split(more)
    if words[:3] == ["conformance", "golden", "export"]:
        words[3] = "exported"
    if words[:2] == ["conformance", "explain"] and "--fault" in words:
        words[2] = RIGHT
    if words[:3] == ["conformance", "golden", "diff"]:
        words[3:] = ["golden/mlx_lm/llama.json", "golden/mlx_lm/qwen3.json"]
    befores = ["", *words[:-1]]
    return [INSTEAD.get(before, word) for before, word in zip(befores, words, strict=True)]
