"""``conformance audit calibrate``."""

import pytest


def test_an_insensitive_family_is_named_and_ends_with_1(conformance):
    done = conformance(
        "audit", "calibrate", "--family", "calm", "--family", "silent", "--jobs", "1"
    )
    assert done.code == 1, done
    assert "INSENSITIVE" in next(
        line for line in done.out.splitlines() if line.startswith("toy/silent")
    )
    assert done.out.splitlines()[-1].startswith("FAILED: 1 of 2 families")
    assert done.out.rstrip().endswith(": toy/silent")


def test_what_cannot_be_run_here_is_listed_and_is_no_failure(conformance):
    done = conformance("audit", "calibrate", "--family", "calm", "--family", "quiet", "--jobs", "2")
    assert done.code == 0, done
    assert "no abacus is so large" in done.out
    assert "1 unsupported here" in done.out


def test_a_family_that_kills_its_process_ends_no_other(conformance):
    names = ("calm", "fatal", "quiet", "silent")
    chosen = [word for name in names for word in ("--family", name)]
    done = conformance("audit", "calibrate", *chosen, "--jobs", "2")
    assert done.code == 1, done
    lines = [line for line in done.out.splitlines() if line.startswith("toy/")]
    assert [line.split()[0] for line in lines] == [f"toy/{name}" for name in names]
    assert "failed: its process crashed" in lines[1]
    assert lines[0].split()[-1] == "ok"
    assert "INSENSITIVE" in lines[3]


def test_json_has_every_signal(conformance):
    done = conformance("audit", "calibrate", "--family", "calm", "--jobs", "1", "--json", "s.jsonl")
    (line,) = done.results("s.jsonl")
    assert line["signals"] == [{"kind": "drop", "where": "token 2", "nats": 1.0}]
    assert line["ratio"] == pytest.approx(1e5)


def test_recipes_are_for_float32(conformance):
    done = conformance("audit", "calibrate", "--family", "calm", "--write", "--dtype", "float16")
    assert done.code == 2
    assert "--write" in done.err


def test_a_plugin_without_calibration_says_so(conformance):
    done = conformance(
        *("audit", "calibrate", "--family", "calm", "--write", "--jobs", "1", "--json", "s.jsonl")
    )
    assert "has no calibration for calm" in done.results("s.jsonl")[0]["status"]
