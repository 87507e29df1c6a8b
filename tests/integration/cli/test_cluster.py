"""Runs on a real scheduler with two workers, one of which is killed in the middle of one."""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from conformance.report.jsonl import read_results
from conformance.tools.explore.causes import cause_of
from conformance.tools.explore.results import Explored

pytest.importorskip("distributed")

CHOSEN = (
    *("--engine", "mlx_lm", "--family", "llama", "--family", "mamba"),
    *("--scenario", "batch_of_one", "--scenario", "ragged", "--fresh", "--quiet"),
)
FAULT = "mlx_lm/A9.filter-keeps-the-first-rows"
PATIENCE = 900.0
ROOT = Path(__file__).parents[3]


def until(found, process):
    """What ``found`` gives as soon as it gives something, while the process runs."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        if it := found():
            return it
        time.sleep(0.05)
    raise AssertionError("it did not come")


@pytest.fixture
def cluster(tmp_path):
    """The address of a scheduler, and its two workers' processes."""
    file = tmp_path / "scheduler.json"
    made = []

    def start(*words):
        with (tmp_path / f"{len(made)}.log").open("wb") as log:
            command = [sys.executable, "-m", "dask", *words, "--scheduler-file", str(file)]
            made.append(subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log))
        return made[-1]

    def address():
        with contextlib.suppress(OSError, ValueError):
            return json.loads(file.read_text())["address"]

    scheduler = start("scheduler", "--host", "127.0.0.1", "--port", "0",
                      "--dashboard-address", "127.0.0.1:0")  # fmt: skip
    try:
        where = until(address, scheduler)
        workers = [start("worker", "--no-nanny", "--nthreads", "1", "--no-dashboard") for _ in "ab"]
        for number, worker in enumerate(workers, 1):
            log = tmp_path / f"{number}.log"
            until(lambda log=log: "Registered to" in log.read_text(), worker)
        yield where, workers
    finally:
        for process in made:
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
            process.kill()
            process.wait()


def run(tmp_path, name, *options):
    command = [sys.executable, "-m", "conformance", "run", *CHOSEN, *options]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    return subprocess.Popen([*command, "--json", str(tmp_path / name)], env=environment)


def at_work(workers):
    """The first worker that plays something."""
    for worker in workers:
        children = psutil.Process(worker.pid).children()
        if any("conformance.app.cluster.child" in child.cmdline() for child in children):
            return worker
    return None


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
    local = run(tmp_path, "local.jsonl", "--jobs", "1")
    assert local.wait(PATIENCE) == 0
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


def test_faults_are_tried_by_the_workers(cluster, tmp_path):
    address, _ = cluster
    chosen = ("--fault", FAULT, "--family", "llama", "--family", "mamba2")
    done = searched(tmp_path, "audit", "power", *chosen, "--cluster", address)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all               1       1         0" in done.stdout
