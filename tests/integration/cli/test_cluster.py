"""Runs on a real scheduler with two workers, one of which is killed in the middle of one.

Other commands on the same scheduler are nightly.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from clusters import PATIENCE, at_work, cluster_in, until
from forked import run_python

from conformance.report.jsonl import read_results
from conformance.tools.explore.results import Explored, cause_of

pytest.importorskip("distributed")

CHOSEN = (
    *("--engine", "mlx_lm", "--family", "llama", "--family", "mamba"),
    *("--scenario", "batch_of_one", "--scenario", "ragged", "--fresh", "--quiet"),
    *("--tier", "default", "--dtype", "float32"),
)
FAULT = "mlx_lm/A9.filter-keeps-the-first-rows"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def cluster(tmp_path):
    """The address of a scheduler, and its two workers' processes."""
    with cluster_in(tmp_path / "cluster") as made:
        yield made


def run(tmp_path, name, *options):
    command = [sys.executable, "-m", "conformance", "run", *CHOSEN, *options]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    return subprocess.Popen([*command, "--json", str(tmp_path / name)], env=environment)


def plain(result):
    return result.case, result.verdict, result.max_abs_diff, result.noise, result.schedules[0].name


def test_a_killed_workers_cases_are_played_again_and_the_results_are_those_of_one_machine(
    cluster, tmp_path
):
    address, workers = cluster
    running = run(tmp_path, "cluster.jsonl", "--cluster", address)
    try:
        until(lambda: at_work(workers), running).kill()
        assert running.wait(PATIENCE) == 0
    finally:
        running.kill()
        running.wait()
    alone = ("-m", "conformance", "run", *CHOSEN, "--jobs", "1", "--json", "local.jsonl")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert run_python(alone, cwd=tmp_path, env=environment, timeout=PATIENCE).returncode == 0
    results = [read_results(tmp_path / f"{name}.jsonl") for name in ("cluster", "local")]
    assert len(results[1]) == 4
    assert [plain(r) for r in results[0]] == [plain(r) for r in results[1]]
    command = [sys.executable, str(ROOT / "ci" / "fleet.py"), str(tmp_path / "cluster.jsonl")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.startswith("4 cases of 2 families")
    assert "100 machines with 8 workers each play them once in" in said


def searched(tmp_path, *options):
    """``conformance explore`` or ``audit power`` on the cluster, to its end."""
    command = [sys.executable, "-m", "conformance", *options]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "COLUMNS": "200"}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


@pytest.mark.nightly
def test_two_workers_explore_with_a_seed_each_and_a_cause_is_shown_once(cluster, tmp_path):
    address, _ = cluster
    found = tmp_path / "found.jsonl"
    chosen = ("--family", "llama", "--fault", FAULT, "--minutes", "0.5", "--json", str(found))
    done = searched(tmp_path, "explore", *chosen, "--cluster", address)
    assert done.returncode == 1, done.stdout + done.stderr
    units = [json.loads(line) for line in found.read_text().splitlines()]
    assert sorted(unit["unit"]["seed"] for unit in units) == [0, 1]
    causes = [
        cause_of(found) for unit in units for found in msgspec.convert(unit, Explored).discoveries
    ]
    assert len(set(causes)) == len(causes) > 0
    assert sum(unit["again"] for unit in units) > 0  # the other worker found it, too


@pytest.mark.nightly
def test_faults_are_tried_by_the_workers(cluster, tmp_path):
    address, _ = cluster
    chosen = ("--fault", FAULT, "--family", "llama", "--family", "mamba2")
    done = searched(tmp_path, "audit", "power", *chosen, "--cluster", address)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all               1       1         0" in done.stdout
