"""Processes that take too much are told and ended; others are left alone."""

import signal
import subprocess
import sys
import time

import pytest

from conformance.app.pytest_plugin import watching
from conformance.app.pytest_plugin.watching import MemoryWatch


@pytest.fixture
def sleeper():
    """Start a process that sleeps; by choice one that does not heed the signal."""
    made = []

    def start(deaf=False):
        heed = "import signal; signal.signal(signal.SIGABRT, signal.SIG_IGN); " if deaf else ""
        code = f"{heed}print(flush=True); import time; time.sleep(30)"
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        process.stdout.readline()
        made.append(process)
        return process

    yield start
    for process in made:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(watching, "EVERY_SECONDS", 0.02)
    monkeypatch.setattr(watching, "GRACE_SECONDS", 0.2)


@pytest.mark.parametrize(("deaf", "end"), [(False, "SIGABRT"), (True, "SIGKILL")])
def test_what_takes_too_much_is_ended(sleeper, deaf, end):
    told = []
    watch, process = MemoryWatch(1, told.append), sleeper(deaf)
    watch.add("gw0", process.pid)
    assert process.wait(20) == -signal.Signals[end]
    watch.remove("gw0")
    assert told == ["gw0"], "once"
    assert watch.taken("gw0") > 1
    watch.close()


def test_what_takes_less_is_left_alone(sleeper, monkeypatch):
    asked = []
    monkeypatch.setattr(watching, "footprint", lambda pid: asked.append(pid) or 99)
    watch, process = MemoryWatch(100), sleeper()
    watch.add("gw0", process.pid)
    until = time.monotonic() + 20
    while len(asked) < 3 and time.monotonic() < until:
        time.sleep(0.01)
    watch.close()
    assert asked
    assert process.poll() is None
    assert watch.taken("gw0") is None


def test_no_limit_watches_nothing(sleeper):
    watch, process = MemoryWatch(0), sleeper()
    watch.add("gw0", process.pid)
    time.sleep(0.1)
    assert process.poll() is None
    assert watch.taken("gw0") is None


def test_a_worker_that_is_over_is_not_looked_at(sleeper, monkeypatch):
    asked, process = [], sleeper()
    monkeypatch.setattr(watching, "footprint", lambda pid: asked.append(pid) or 1)
    watch = MemoryWatch(100)
    watch.add("gw0", process.pid)
    watch.remove("gw0")
    time.sleep(0.05)  # a look that had begun
    asked.clear()
    time.sleep(0.1)
    assert asked == []
    watch.close()
