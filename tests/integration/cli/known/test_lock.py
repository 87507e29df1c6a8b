"""``conformance known lock``: searches the smallest schedule of a known defect, and runs it."""

import json

import msgspec
import pytest
from click.testing import CliRunner

from conformance.app.cli.known import lock
from conformance.app.cli.main import group
from conformance.checks.expectations.lock import lock_file, read_lock, write_lock
from conformance.core.library_source import versions_of
from conformance.core.verdict import Verdict

ENTRY = "mamba-padded-state"
SERVED = "server-stop-of-no-text"
VERSION = versions_of("mlx-lm")["mlx-lm"]


@pytest.fixture
def known_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "OWN", tmp_path)

    def run(*words):
        return CliRunner().invoke(group, ["known", "lock", *words, "--jobs", "1"])

    return run


def test_a_schedule_is_searched_stored_and_run(known_lock, tmp_path):
    done = known_lock(ENTRY, "--write", "--seconds", "10")
    assert done.exit_code == 0, done.output
    assert f"{ENTRY} in mamba: diverged with 2 requests, prompts of other lengths" in done.output
    (line,) = read_lock(lock_file(tmp_path, "mlx-lm", VERSION))
    assert (line.entry, line.verdict) == (ENTRY, Verdict.DIVERGED)

    into = tmp_path / "seen.json"
    done = known_lock(ENTRY, "--json", str(into))
    assert done.exit_code == 0, done.output
    assert f"{ENTRY}: still diverged in mamba" in done.output
    assert "1 of 1 known defect with a schedule of their own" in done.stderr
    (seen,) = json.loads(into.read_text())
    assert seen == {
        "entry": ENTRY,
        "case": line.case,
        "locked": "diverged",
        "verdict": "diverged",
    }
    assert known_lock(ENTRY, "--family", "llama").output.startswith("1 of 1"), "none is of llama"

    other = msgspec.structs.replace(line, case=line.case.replace("mlx_lm/", "not_here/"))
    write_lock(lock_file(tmp_path, "mlx-lm", VERSION), [line, other])
    assert known_lock(ENTRY, "--json", str(into)).exit_code == 0, "that engine's plugin is absent"
    assert len(json.loads(into.read_text())) == 1

    write_lock(lock_file(tmp_path, "mlx-lm", VERSION), [_of_one_row(line)])
    done = known_lock(ENTRY)
    assert done.exit_code == 1, "a row alone has no padding"
    assert f"{ENTRY}: exact, was diverged in mamba" in done.output


def _of_one_row(line):
    arrival = line.schedule.arrivals[0]
    alone = msgspec.structs.replace(arrival, requests=arrival.requests[:1])
    schedule = msgspec.structs.replace(line.schedule, arrivals=(alone,))
    return msgspec.structs.replace(line, schedule=schedule)


def test_entries_without_a_schedule_are_named_with_the_reason(known_lock):
    done = known_lock(ENTRY, SERVED, "--minutes", "0.000001", "--write")
    assert done.exit_code == 0, done.output
    assert f"no schedule, none is stored: 1: {ENTRY}" in done.output
    served = "it shows on a server, whose schedules are not made smaller"
    assert f"no schedule, {served}: 1: {SERVED}" in done.output
    assert "not searched, as time was up: " in done.output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("mamba-padded-stat",), "no known defect matches 'mamba-padded-stat'"),
        ((ENTRY, "--write", "--seconds", "-1"), "--seconds"),
    ],
)
def test_what_cannot_be_done_ends_in_one_sentence(known_lock, words, says):
    done = known_lock(*words)
    assert done.exit_code != 0
    assert says in f"{done.output}{done.exception}"


def test_a_checkout_has_no_lock(known_lock, monkeypatch):
    class Source:
        text = "a checkout at /here"

    monkeypatch.setattr(lock, "source_of", lambda package: Source())
    done = known_lock(ENTRY, "--write")
    assert "mlx-lm is a checkout at /here, which is no release" in done.output
