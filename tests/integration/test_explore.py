"""``conformance explore``: what it prints, writes and keeps, and how it ends."""

import json
import os

import pytest
from forked import run_python

from conformance.core.schedule import from_json


@pytest.fixture
def llama(tmp_path):
    """The command on the smallest real family."""

    def run(*arguments):
        command = ("-m", "conformance", "explore", "--family", "llama", "--jobs", "1", *arguments)
        environment = os.environ | {"TRANSFORMERS_VERBOSITY": "error"}
        return run_python(command, cwd=tmp_path, env=environment, timeout=300)

    return run


def test_what_is_right_ends_well_and_shows_what_was_covered(llama, tmp_path):
    done = llama("--examples", "15", "--json", "r.jsonl")
    assert done.returncode == 0, done
    assert "mlx_lm/llama: 15 schedules (" in done.stdout
    assert "pairs of features:" in done.stdout
    assert "witnesses:" in done.stdout
    assert "OK: 0 findings in 15 schedules, 1 families;" in done.stdout
    line = json.loads((tmp_path / "r.jsonl").read_text())
    assert line["examples"] == sum(line["rates"]) == 15
    assert line["discoveries"] == []


def test_a_fault_is_found_and_not_kept(llama, tmp_path):
    found = ("--fault", "mlx_lm/B1.first-sampled-token-lost", "--corpus", "kept")
    done = llama(*found, "--json", "r.jsonl")
    assert done.returncode == 1, done
    assert "found by example 1 (schedules), shrunk to 1 request" in done.stdout
    line = json.loads((tmp_path / "r.jsonl").read_text())
    schedule = from_json(json.dumps(line["discoveries"][0]["schedule"]))
    assert len(schedule.requests) == 1
    assert not (tmp_path / "kept").exists()


def test_time_ends_it(llama):
    done = llama("--minutes", "0.02")
    assert done.returncode == 0, done
    assert "mlx_lm/llama: " in done.stdout


@pytest.fixture
def explore(conformance):
    return lambda *arguments: conformance("explore", "--jobs", "1", "--engine", "toy", *arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--family", "nowhere"), "no family matches 'nowhere'"),
        (("--family", "calm", "--fault", "toy/no"), "no fault matches 'toy/no'"),
        (("--family", "calm", "--json", "no/r.jsonl"), "--json: there is no folder"),
        (("--family", "calm", "--corpus", "no/kept"), "--corpus: there is no folder"),
        (("--cases", "5"), "--cases goes with --false-alarms only"),
        (("--dtype", "float16", "--dtype", "float32"), "a second --dtype goes with --false-alarms"),
        (("--false-alarms", "--minutes", "5"), "--minutes does not go with --false-alarms"),
        (("--false-alarms", "--examples", "5"), "--examples does not go with --false-alarms"),
        (("--false-alarms", "--fault", "toy/B"), "--fault does not go with --false-alarms"),
        (("--false-alarms", "--known"), "--known does not go with --false-alarms"),
        (("--false-alarms", "--corpus", "kept"), "--corpus does not go with --false-alarms"),
    ],
)
def test_a_mistake_is_reported_in_one_sentence(explore, arguments, words):
    done = explore(*arguments)
    assert done.code == 2, done
    assert words in done.err
    assert "Traceback" not in done.err
