"""A plugin package as another project ships it: installed for real, found, and run."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from forked import run_python

from conformance.core.verdict import Verdict, decode

SOURCE = Path(__file__).parents[1] / "example_plugin"


@pytest.fixture(scope="module")
def conformance(tmp_path_factory):
    """The command, in processes that have the example plugin installed."""
    folder = tmp_path_factory.mktemp("example")
    # Built from a copy: a build leaves files beside the sources.
    source = shutil.copytree(SOURCE, folder / "source")
    site = folder / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--target", str(site)]
    subprocess.run([*install, *offline, str(source)], check=True, timeout=300)

    def call(*arguments, plugin=True):
        environment = {**os.environ, "PYTHONPATH": str(site) if plugin else ""}
        code = "import sys; from conformance.app.cli import main; main(sys.argv[1:])"
        return run_python(["-c", code, *arguments], cwd=folder, env=environment, timeout=300)

    return call


def test_the_installed_plugin_is_listed(conformance):
    done = conformance("show", "plugins")
    assert done.returncode == 0, done.stderr
    assert "conformance_example" in done.stdout.replace("\n", "")


def test_its_family_and_its_engine_are_listed(conformance):
    families = conformance("show", "families")
    engines = conformance("show", "engines", "--json")
    assert "capped_llama" in families.stdout
    assert "one_by_one" in {engine["engine"] for engine in json.loads(engines.stdout)["engines"]}


def test_without_the_package_they_are_not_there(conformance):
    done = conformance("run", "--engine", "one_by_one", plugin=False)
    assert done.returncode == 2
    assert "no engine matches 'one_by_one'" in done.stderr


@pytest.mark.parametrize(
    "engine", ["one_by_one", pytest.param("mlx_lm", marks=pytest.mark.nightly)]
)
def test_its_family_runs_on_its_engine_and_on_ours(conformance, engine, tmp_path):
    code, case = run_case(conformance, tmp_path, engine, "batch_of_one")
    assert code == 0
    assert case.verdict in (Verdict.EXACT, Verdict.TIE)
    assert case.forward_seconds > 0, "the model ran"


def test_an_engine_that_never_makes_a_batch_proves_nothing(conformance, tmp_path):
    code, case = run_case(conformance, tmp_path, "one_by_one", "equal_length")
    assert code == 1
    assert case.verdict is Verdict.VACUOUS


def run_case(conformance, folder, engine, scenario):
    """Exit code and result of the one case."""
    file = folder / "results.jsonl"
    selected = ["--engine", engine, "--family", "capped_llama", "--scenario", scenario]
    done = conformance("run", *selected, "--jobs", "1", "--json", str(file))
    assert file.is_file(), done.stdout + done.stderr
    _, line = file.read_text().splitlines()
    return done.returncode, decode(line)
