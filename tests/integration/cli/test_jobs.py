"""``--jobs``."""

from collections import defaultdict

import pytest


def processes(path):
    """For each process the families that it ran, from the toy plugin's log."""
    found = defaultdict(set)
    for line in path.read_text().splitlines():
        pid, case = line.split()
        found[pid].add(case.split("/")[1])
    return list(found.values())


def test_workers_never_share_a_family(toy_run, tmp_path):
    log = tmp_path / "log"
    done = toy_run("--family", "[cqt]*", "--jobs", "2", TOY_LOG=str(log), TOY_SECONDS="0.05")
    assert "exact" in done.out, done
    split = processes(log)
    assert len(split) == 2, "both workers had work"
    assert not split[0] & split[1], "a model and its oracle are made once"


def test_one_job_means_this_process(toy_run, tmp_path):
    log = tmp_path / "log"
    toy_run("--family", "calm", "--family", "quiet", "--jobs", "1", TOY_LOG=str(log))
    assert processes(log) == [{"calm", "quiet"}]


def test_a_crash_is_a_verdict_and_the_rest_is_run(toy_run, tmp_path):
    log = tmp_path / "log"
    done = toy_run(
        *("--family", "calm", "--family", "fatal", "--jobs", "auto", "--json", "r.jsonl"),
        TOY_LOG=str(log),
    )
    assert done.code == 1, done
    assert done.verdicts() == {
        "calm/repeat": "exact",
        "calm/ragged": "exact",
        "calm/staggered": "exact",
        "fatal/repeat": "exact",
        "fatal/ragged": "crash",
        "fatal/staggered": "exact",
    }
    crash = next(r for r in done.results() if r["verdict"] == "crash")
    assert "Segmentation fault in tests/toy/toy_plugin.py" in crash["evidence"][0]["got"]
    assert log.read_text().count("toy/fatal/ragged") == 1, "it is not given to the next worker"


@pytest.mark.parametrize("wrong", ["0", "-3", "many"])
def test_a_number_that_makes_no_sense_is_refused(toy_run, wrong):
    done = toy_run("--jobs", wrong)
    assert done.code == 2
    assert "'auto' nor a number" in done.err
