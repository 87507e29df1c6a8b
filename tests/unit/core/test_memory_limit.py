"""What a process may take, and the end of one that takes too much."""

import signal
import time

import pytest
from started_processes import STARTS, ends, starter

from conformance.core import memory_limit
from conformance.core.memory_limit import (
    LEAST,
    SHARE,
    MemoryWatch,
    fair_limit,
    memory_of_machine,
)

IGNORES = "import signal; signal.signal(signal.SIGABRT, signal.SIG_IGN)"


@pytest.fixture
def start():
    with starter() as call:
        yield call


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(memory_limit, "EVERY_SECONDS", 0.02)


# What it may take --------------------------------------------------------------------------------


def test_a_container_has_less_memory_than_its_machine(monkeypatch, tmp_path):
    monkeypatch.setattr(memory_limit, "_CGROUPS", ())
    whole = memory_of_machine()
    files = {"max": "max\n", "less": f"{2**30}\n", "more": f"{2**60}\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    for name, expected in {"max": whole, "less": 2**30, "more": whole, "none": whole}.items():
        monkeypatch.setattr(memory_limit, "_CGROUPS", (str(tmp_path / name),))
        assert memory_of_machine() == expected, name


def test_processes_share_but_each_can_load_a_library(monkeypatch):
    monkeypatch.setattr(memory_limit, "memory_of_machine", lambda: 100 * 10**9)
    assert fair_limit(4) == int(SHARE * 25e9)
    assert fair_limit(0) == fair_limit(1) == int(SHARE * 100e9)
    assert fair_limit(1000) == LEAST
    assert fair_limit(2, 0.5) == 25 * 10**9


# The end of one that takes too much --------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "grace", "end"), [("pass", 60, "SIGABRT"), (IGNORES, 0.2, "SIGKILL")]
)
def test_what_takes_too_much_is_ended(start, monkeypatch, code, grace, end):
    monkeypatch.setattr(memory_limit, "GRACE_SECONDS", grace)
    ended = []
    watch, (process, _) = MemoryWatch(1, ended.append), start(code)
    watch.add("gw0", process.pid)
    assert process.wait(20) == -signal.Signals[end]
    assert ended == ["gw0"], "once"
    assert watch.taken("gw0") > 1
    watch.close()


def test_what_it_started_is_ended_with_it(start, monkeypatch):
    monkeypatch.setattr(memory_limit, "GRACE_SECONDS", 60)
    process, line = start(STARTS)
    watch = MemoryWatch(1)
    watch.add("gw0", process.pid)
    assert process.wait(20) == -signal.SIGABRT
    assert ends(int(line))
    watch.close()


def test_what_takes_less_goes_on(start, monkeypatch):
    looks = []
    monkeypatch.setattr(memory_limit, "memory_of", lambda process: looks.append(process) or 99)
    watch, (process, _) = MemoryWatch(100), start()
    watch.add("gw0", process.pid)
    until = time.monotonic() + 20
    while len(looks) < 3 and time.monotonic() < until:
        time.sleep(0.01)
    watch.close()
    assert looks
    assert process.poll() is None
    assert watch.taken("gw0") is None


def test_no_limit_watches_nothing(start):
    watch, (process, _) = MemoryWatch(0), start()
    watch.add("gw0", process.pid)
    time.sleep(0.1)
    assert process.poll() is None
    assert watch.taken("gw0") is None


@pytest.mark.parametrize(
    ("command", "limit"),
    [
        ("run --engine mlx_lm", 950),
        ("run --memory 3", 3e9),
        ("run --memory=2.5 --jobs 1", 2.5e9),
        ("--pyargs conformance.suite --conformance-memory=3", 3e9),
        ("run --memory 1", memory_limit.LEAST),
        ("run --memory 0", 0),
        ("run --model folder --force", 0),
        ("run --memory", 950),
    ],
)
def test_a_commands_own_process_has_a_limit(monkeypatch, command, limit):
    monkeypatch.setattr(memory_limit, "fair_limit", lambda processes, share: 1000 * share)
    assert memory_limit.limit_of_command(command.split()) == limit
