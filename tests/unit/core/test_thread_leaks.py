"""Threads that a case leaves behind, and those that it does not."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from conformance.core import thread_leaks as lingering
from conformance.core.thread_leaks import Lingering, finding_of
from conformance.core.verdict import Verdict


@pytest.fixture
def begin(monkeypatch):
    """Begin a thread that runs until the test is over."""
    monkeypatch.setattr(lingering, "GRACE_SECONDS", 0.1)
    over = threading.Event()

    def call(daemon=False):
        thread = threading.Thread(target=over.wait, name="forgotten", daemon=daemon)
        thread.start()
        return thread

    yield call
    over.set()


def test_a_thread_that_goes_on_is_told_with_its_place(begin):
    before = begin()
    watched = Lingering()
    thread = begin()
    assert watched.left() == (thread,), "not the one that was there before"
    finding = finding_of(watched.left())
    assert (finding.verdict, finding.check) == (Verdict.LEAK, "threads")
    assert finding.got.startswith("forgotten in ")
    assert "threading.py:" in finding.got
    assert before.is_alive()


def test_a_thread_may_take_a_moment_to_end(monkeypatch):
    monkeypatch.setattr(lingering, "GRACE_SECONDS", 5.0)
    watched = Lingering()
    threading.Thread(target=time.sleep, args=[0.1]).start()
    assert watched.left() == ()


def test_daemons_and_pools_hold_nobody(begin):
    watched = Lingering()
    begin(daemon=True)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        assert watched.left() == ()
