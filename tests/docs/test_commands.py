"""Every command that a document shows is run, or named with the reason why not.

By day each command once, with most of its options; that the others exist is looked up.
"""

import os
import shutil
import sys
from pathlib import Path

import click
import pytest
from checkpoint_folders import make_folder
from docs.documented import NOT_RUN, ROOT, all_shown, by_day, not_run, options, shown, small
from forked import run_python
from library_checkouts import make_checkout
from shared_oracles import share

from conformance.app.cli.main import group
from docs import documented

RUN = sorted({tuple(small(command)) for command in all_shown() if not not_run(command)})
# By day other tests run these, in tests/integration.
ELSEWHERE = ("conformance new family", "conformance known lock", "conformance audit caches")
ELSEWHERE += ("python -m pytest --pyargs conformance.suite -k goldens",)
DAY = [words for words in by_day(RUN) if not " ".join(words).startswith(ELSEWHERE)]
# These are asked about what is wrong, and say so by exit code 1.
FINDS = ("conformance golden diff", "conformance explore --family llama --fault")


@pytest.fixture(scope="session")
def workspace(tmp_path_factory):
    """What a reader who follows the documents has: results, vectors, a config, a checkpoint."""
    folder = tmp_path_factory.mktemp("reader")
    shutil.copy(ROOT / "tests/configs/Qwen3-8B.json", folder / "config.json")
    shutil.copy(ROOT / "conformance/plugins/mlx_lm/families/llama.json", folder / "mine.json")
    make_folder(folder / "checkpoint")
    for name in ("golden", "corpus", "expectations/scripts"):
        shutil.copytree(ROOT / name, folder / name)
    share(folder / "cache")
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "mlx-lm").symlink_to(make_checkout(tmp_path_factory.mktemp("mlx-lm")))
    llama = "--engine mlx_lm --family llama --scenario ragged"
    for line in (
        f"conformance run {llama} --json old.jsonl",
        f"conformance run {llama} --json new.jsonl",
        "conformance run --engine mlx_lm --family afm7 --scenario ragged",  # later ones reuse it
        "conformance golden export vectors --engine mlx_lm --family llama --scenario equal_length",
        "python examples/mlx_lm_engine/decode.py vectors trace.jsonl",
    ):
        done = call(line.split(), folder)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return folder


def call(words, folder):
    """Run a command as a reader does, with this Python's ``conformance``."""
    assert words[0] in ("conformance", "python"), words
    words = ["-m", *words] if words[0] == "conformance" else words[1:]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "COV"))}
    environment["PYTHONPATH"] = str(ROOT)
    environment["XDG_CACHE_HOME"] = str(folder / "cache")
    # As in the virtual environment that a reader works in.
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    return run_python(words, cwd=folder, env=environment, timeout=280)


@pytest.mark.parametrize(
    "words",
    [pytest.param(w, id=" ".join(w), marks=[pytest.mark.nightly] * (w not in DAY)) for w in RUN],
)
def test_a_command_of_the_documents_runs(workspace, words, tmp_path):
    here = tmp_path / "here"
    shutil.copytree(workspace, here, symlinks=True)
    done = call(words, here)
    printed = f"{' '.join(words)}\nexit code {done.returncode}\n{done.stdout}{done.stderr}"
    fails = " ".join(words).startswith(FINDS) or "--no-expectations" in words
    assert done.returncode == int(fails), printed
    # No traceback of ours; a method of unittest that is tried prints one of its own.
    assert "conformance/app/cli/main.py" not in done.stderr, printed


def test_each_command_that_is_not_run_is_in_a_document():
    assert {
        start for start in NOT_RUN if not any(c.startswith(start) for c in all_shown())
    } == set()


def test_comments_and_what_stands_outside_of_blocks_are_no_commands(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("conformance no\n```\nconformance run -x   # why\nnot this\n```\n")
    assert shown(page) == ["conformance run -x"]


def test_what_is_long_is_made_small():
    wide = " ".join(small("conformance run --family 'qwen3*' --scenario wide"))
    assert wide == "conformance run --family qwen3 --scenario wide --engine mlx_lm --jobs 1"
    few = " ".join(small("conformance explore --false-alarms --cases 1000 --family llama"))
    assert few == "conformance explore --false-alarms --cases 3 --family llama --jobs 1"


def test_each_command_is_among_those_of_the_day():
    few = by_day([("conformance", "run"), ("conformance", "run", "--lf"), ("conformance", "diff")])
    assert few == [("conformance", "run", "--lf"), ("conformance", "diff")]
    repeated = [("conformance", "audit", "power", "--quick"), ("conformance", "audit", "bench")]
    assert by_day(repeated) == repeated


def unknown(words):
    """Options that a command of this package is given and has not."""
    command = group
    for word in words[1:]:
        if isinstance(command, click.Group):
            command = command.get_command(click.Context(command), word)
    names = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    return options(words) - names - {"--help", "--version"}


def test_each_option_that_a_document_shows_is_one_of_its_command():
    commands = [words for command in all_shown() if (words := small(command))[0] == "conformance"]
    assert len(commands) > len(DAY)
    assert not set().union(*map(unknown, commands))
    assert unknown(["conformance", "run", "--lf", "--engin"]) == {"--engin"}


def test_a_command_that_fails_is_seen_to_fail(workspace):
    done = call(["conformance", "run", "--family", "nobody"], workspace)
    assert done.returncode == 2
    assert documented.PLACES["NAME"] == "llama"
