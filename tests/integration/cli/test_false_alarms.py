"""``conformance explore --false-alarms`` on a real family that is right."""

import re

import pytest

COMMAND = ("-m", "conformance", "explore", "--false-alarms")


@pytest.fixture
def false_alarms(start):
    def run(*arguments):
        chosen = ("--cases", "30", "--dtype", "float32", "--jobs", "1", *arguments)
        return start(*COMMAND, *chosen, PYTHONPATH="")

    return run


def test_a_right_engine_raises_no_alarm(false_alarms):
    done = false_alarms("--family", "llama", "--json", "r.jsonl")
    assert done.code == 0, done
    (line,) = [text for text in done.out.splitlines() if text.startswith("OK: 0 alarms in ")]
    rows, schedules = map(int, re.findall(r"(\d+) (?:rows|schedules)", line))
    assert rows >= 30
    assert sum(found["rows"] for found in done.results()) == rows
    assert sum(found["schedules"] for found in done.results()) == schedules
    assert not any(found["alarms"] for found in done.results())


def test_a_family_with_known_defects_is_no_witness(false_alarms):
    done = false_alarms("--family", "plamo2")
    assert done.code == 2, done
    assert "no family without a known defect is selected: plamo2" in done.err
    assert "Traceback" not in done.err


def test_the_result_file_must_be_writable_before_anything_is_played(false_alarms):
    done = false_alarms("--family", "llama", "--json", "no/such/folder/r.jsonl")
    assert done.code == 2, done
    assert "no/such/folder" in done.err
