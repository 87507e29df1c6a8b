"""``conformance audit power``: crashed processes, interruptions, result files."""

import json
import signal
import subprocess
import sys
import time

import pytest


@pytest.fixture
def power(conformance):
    return lambda *arguments: conformance("audit", "power", "--family", "calm", *arguments)


def outcomes(done, name="r.jsonl"):
    return {trial["fault"]: trial["outcome"] for trial in done.results(name)}


def test_a_fault_that_kills_its_process_costs_no_other_its_trial(power):
    done = power("--fault", "caught", "--fault", "deadly", "--jobs", "2", "--json", "r.jsonl")
    assert done.code == 1, done
    assert outcomes(done) == {"caught": "killed", "deadly": "survived"}
    assert "survived: deadly in toy/calm float32 (its process crashed)" in done.out
    assert "FAILED: 1 of 2 pairs of fault and family were killed (50.0%)" in done.out


def test_every_scenario_is_tried_where_that_is_asked_for(power):
    done = power("--fault", "caught", "--jobs", "1", "--json", "r.jsonl", "--every-scenario")
    assert done.code == 0, done
    (trial,) = done.results()
    assert trial["complete"]
    assert sorted(trial["tried"]) == ["ragged", "repeat", "staggered"]


def test_a_result_file_is_reported_without_a_run(power, conformance, tmp_path):
    assert power("--fault", "caught", "--jobs", "1", "--json", "caught.jsonl").code == 0
    assert power("--fault", "uncaught", "--jobs", "1", "--json", "uncaught.jsonl").code == 1
    both = ("--read", "caught.jsonl", "--read", "uncaught.jsonl")
    done = conformance("audit", "power", *both, "--json", "both.jsonl", "--table", "both.md")
    assert done.code == 1
    table = (tmp_path / "both.md").read_text(encoding="utf-8")
    assert "| `uncaught` | survived |" in table
    assert table.endswith("1 of 2 killed.\n")
    assert "survived: uncaught in toy/calm float32 (tried ragged)" in done.out
    assert outcomes(done, "both.jsonl") == {"caught": "killed", "uncaught": "survived"}


def test_a_file_of_something_else_is_reported_in_a_sentence(conformance, tmp_path):
    (tmp_path / "other.jsonl").write_text('{"case": "x"}\n')
    done = conformance("audit", "power", "--read", "other.jsonl")
    assert done.code == 2
    assert "other.jsonl, line 1: not a result of `conformance audit power`" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_interruption_keeps_what_was_found(environment, tmp_path, conformance, jobs):
    arguments = ["audit", "power", "--family", "[cq]*", "--fault", "caught", "--json", "r.jsonl"]
    (tmp_path / "r.jsonl").write_text("old\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "conformance", *arguments, "--fault", "endless", "--jobs", jobs],
        cwd=tmp_path,
        env={**environment, "TOY_FAMILIES": "calm quiet", "TOY_ENDLESS": "quiet"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    partial = tmp_path / "r.jsonl.partial"
    deadline = time.monotonic() + 300
    while not (partial.exists() and partial.read_text().count("\n") == 2):
        assert time.monotonic() < deadline, "the first family's trials are never written"
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 2, (out, err)
    assert "Traceback" not in err
    assert "interrupted" in out
    assert (tmp_path / "r.jsonl").read_text() == "old\n"
    assert {json.loads(line)["family"] for line in partial.read_text().splitlines()} == {"calm"}
    assert conformance("audit", "power", "--read", partial.name).code == 1
