"""``conformance run`` plays again only what hangs on something that changed."""

import os
import shutil
import subprocess
from pathlib import Path

import mlx_lm
import pytest

CASES = ("--engine", "mlx_lm", "--family", "llama", "--family", "qwen3", "--scenario", "batch_of*")
LLAMA, QWEN = (f"mlx_lm/{name}/batch_of_one/float32/0" for name in ("llama", "qwen3"))


@pytest.fixture
def checkout(tmp_path, environment):
    """A git checkout of mlx-lm that Python imports, with one commit; older than any process."""
    package = tmp_path / "checkout/mlx_lm"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(mlx_lm.__file__).parent, package, ignore=ignored)
    git = ("git", "-C", package.parent, "-c", "user.name=a", "-c", "user.email=a@b")
    for arguments in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        subprocess.run([*git, *arguments], check=True)
    environment["PYTHONPATH"] = str(package.parent)
    for path in package.rglob("*.py"):
        os.utime(path, (1, 1))
    return package


@pytest.fixture
def play(conformance, checkout):
    """Run the two cases in this process; the ids of those that were really played."""

    def command(*options):
        done = conformance("run", *CASES, *options, "--jobs", "1", "--json", "r.jsonl")
        assert done.code == 0, done
        return {r["case"] for r in done.results() if not r["reused"]}, done

    return command


def edit(path):
    """Change a file's text, as an editor does before a process begins."""
    path.write_text(path.read_text() + "\n# changed\n")
    os.utime(path, (2, 2))


def test_a_changed_model_file_plays_its_family_and_a_shared_file_all(play, checkout, tmp_path):
    assert play()[0] == {LLAMA, QWEN}
    played, done = play()
    assert played == set()
    assert "2 cases, all as expected" in done.out
    assert "2 reused from earlier runs" in done.out
    shutil.copy(tmp_path / "r.jsonl", tmp_path / "before.jsonl")
    edit(checkout / "models/llama.py")
    assert play("--changed", "HEAD")[0] == {LLAMA}
    edit(checkout / "models/llama.py")
    assert play()[0] == {LLAMA}
    assert play("--since", "before.jsonl")[0] == {LLAMA}
    edit(checkout / "models/cache.py")
    assert play("--changed")[0] == {LLAMA, QWEN}
    assert play("--fresh")[0] == {LLAMA, QWEN}
    assert play()[0] == set()


def test_the_last_failures_are_played_alone_until_they_are_right(conformance, checkout):
    models = checkout / "models"
    whole, wrong = (models / "qwen3.py").read_text(), "raise RuntimeError('no')\n"
    (models / "qwen3.py").write_text(
        whole.replace(
            "def __call__(",
            "def __call__(self, *a, **k):\n        " + wrong + "\n    def _gone(",
            1,
        )
    )
    options = ("run", *CASES, "--jobs", "1", "--json", "r.jsonl")
    assert conformance(*options).code == 1
    (models / "qwen3.py").write_text(whole)
    done = conformance(*options, "--lf")
    assert done.code == 0, done
    assert [r["case"] for r in done.results()] == [QWEN]
    assert "1 left out" in done.out
    assert "not run: 1 case; last results: exact 1" in done.out
    assert len(conformance(*options, "--lf").results()) == 2


@pytest.mark.parametrize(
    "options", [("--fresh", "--lf"), ("--changed", "--since", "r.jsonl"), ("--since", "none.jsonl")]
)
def test_options_that_exclude_each_other_and_files_that_are_not_there_are_refused(
    conformance, tmp_path, options
):
    (tmp_path / "r.jsonl").touch()
    done = conformance("run", *options)
    assert done.code == 2
    assert "Traceback" not in done.err


@pytest.fixture
def failed(conformance, environment):
    """Run two cases as if no defect were known; the one that fails was played before."""
    environment.pop("PYTHONPATH")  # the libraries in place of the toys
    (wrong, right) = (f"mlx_lm/llama/{name}/float32/0" for name in ("invalid", "ragged"))

    def command(*options, scenarios=("invalid", "ragged")):
        chosen = [part for name in scenarios for part in ("--scenario", name)]
        shared = ("--engine", "mlx_lm", "--family", "llama", "--no-expectations", "--jobs", "1")
        alone = ("--explain-seconds", "0", "--json", "r.jsonl")
        return conformance("run", *shared, *chosen, *options, *alone)

    assert command(scenarios=("invalid",)).code == 1
    return command, wrong, right


def test_a_reused_failure_stops_a_run_and_is_a_failure_of_the_last_one(failed, environment):
    command, wrong, right = failed
    (remembered,) = Path(environment["XDG_CACHE_HOME"]).rglob("last_failed.json")
    remembered.unlink()
    done = command("-x")
    assert done.code == 1, done
    assert [(r["case"], r["reused"]) for r in done.results()] == [(wrong, True)]
    assert f"protocol: {wrong}" in done.out
    assert "1 case not run" in done.out
    done = command("--lf")
    assert [(r["case"], r["reused"]) for r in done.results()] == [(wrong, False)]
    assert "1 left out" in done.out
    assert "not run: 1 case; last results: none is known of 1" in done.out
    done = command("--changed")
    assert done.code == 1, done
    assert [r["case"] for r in done.results()] == [right]
    assert "not run: 1 case; last results: protocol 1" in done.out
    assert f"not run, and not as expected the last time: 1 case: {wrong} (protocol)" in done.out
    assert "FAILED: 1 other problem" in done.out.splitlines()[-1]
    done = command("--changed", scenarios=("ragged",))
    assert done.code == 0, done
    assert "NOTHING RUN: no case was played" in done.out.splitlines()[-1]


@pytest.mark.nightly
def test_of_what_is_left_out_nothing_may_be_known(conformance, checkout):
    """What an older commit touches does not say whether the rest was ever right."""
    options = ("run", *CASES, "--jobs", "1", "--tier", "full")
    assert conformance(*options).code == 0
    edit(checkout / "models/qwen3.py")
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    commit = ("git", "-C", checkout.parent, *author, "commit", "-qam", "second")
    subprocess.run(commit, check=True)
    done = conformance(*options, "--changed", "HEAD")
    assert done.code == 5, done
    assert "not run: 2 cases; last results: exact 1, none is known of 1" in done.out
