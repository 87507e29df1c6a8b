"""``audit mutants --cluster``: as on one machine, also where a worker is killed in mid-run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from clusters import PATIENCE, at_work, cluster_in, until

from conformance.report.mutants import read_mutants

pytest.importorskip("distributed")

TOY = Path(__file__).parents[3] / "toy"
VARIABLES = {"PYTHONPATH": str(TOY), "TOY_PLUGIN": "mutants_plugin"}
CHOSEN = ("--library", "toy", "--module", "toy/*.py", "--family", "calm")


def started(tmp_path, file, *more):
    command = [sys.executable, "-m", "conformance", "audit", "mutants", *CHOSEN, *more]
    variables = {**os.environ, **VARIABLES, "XDG_CACHE_HOME": str(tmp_path / "mine")}
    return subprocess.Popen([*command, "--json", str(tmp_path / file)], env=variables)


def found(file):
    """What became of each mutant; how long it took is another thing."""
    results = read_mutants([file])
    return sorted((str(r.mutant.key), r.fate.value, r.kill, r.played, r.why) for r in results)


# By day test_cluster.py kills a worker of a run.
@pytest.mark.nightly
def test_a_killed_workers_mutants_are_tried_again_and_the_fates_are_those_of_one_machine(tmp_path):
    variables = {**VARIABLES, "XDG_CACHE_HOME": str(tmp_path / "theirs")}
    with cluster_in(tmp_path / "cluster", **variables) as (address, workers):
        running = started(tmp_path, "cluster.jsonl", "--cluster", address)
        try:
            until(lambda: at_work(workers, "spawn_main"), running).kill()
            assert running.wait(PATIENCE) == 1
        finally:
            running.kill()
            running.wait()
        none = started(tmp_path, "none.jsonl", "--cluster", address, "--minutes", "0")
        assert none.wait(PATIENCE) == 2
    assert started(tmp_path, "local.jsonl", "--jobs", "1").wait(PATIENCE) == 1
    here = found(tmp_path / "local.jsonl")
    assert {fate for _, fate, *_ in here} >= {"killed", "survived", "unreached"}
    assert found(tmp_path / "cluster.jsonl") == here
    left = found(tmp_path / "none.jsonl.partial")
    assert {fate for _, fate, *_ in left} == {"unreached"}
