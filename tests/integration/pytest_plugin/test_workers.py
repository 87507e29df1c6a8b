"""The suite under pytest-xdist."""

from collections import defaultdict


def families_by_process(path):
    found = defaultdict(set)
    for line in path.read_text().splitlines():
        pid, case = line.split()
        found[pid].add(case.split("/")[1])
    return list(found.values())


def test_another_distribution_is_respected(suite, tmp_path):
    log = tmp_path / "log"
    options = ("--conformance-family", "calm", "-n", "2", "--dist", "load")
    done = suite(*options, TOY_LOG=str(log), TOY_SECONDS="0.2")
    assert done.code == 0, done
    assert families_by_process(log) == [{"calm"}, {"calm"}]


def test_a_replaced_worker_does_not_wait_for_a_second_item_for_ever(suite):
    options = ("--conformance-family", "fatal", "--conformance-family", "quiet", "-n", "1")
    done = suite(*options)
    assert "1 failed, 5 passed" in done.out, done


def test_a_crash_that_is_expected_passes(suite, tmp_path):
    folder = tmp_path / "known"
    folder.mkdir()
    (folder / "toy.toml").write_text(
        'package = "toy"\n[[defect]]\nid = "bounds"\nfamilies = ["fatal"]\nversions = ">=1"\n'
        'where = "x.py:1"\nwhy = "x"\nscript = "x.py"\nverdicts = { ragged = "crash" }\n'
    )
    done = suite(
        *("--conformance-family", "fatal", "-n", "1", "--conformance-expectations", "known"),
        *("--conformance-json", "r.jsonl"),
    )
    assert done.code == 0, done
    assert "3 passed" in done.out
    assert done.verdicts()["fatal/ragged"] == "crash"
