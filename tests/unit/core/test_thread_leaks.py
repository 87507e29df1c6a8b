"""Threads that a case leaks, and those that are no leak."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from conformance.core import thread_leaks
from conformance.core.thread_leaks import ThreadLeaks, finding_of
from conformance.core.verdict import Verdict


@pytest.fixture
def begin(monkeypatch):
    """Begin a thread that runs until the test is over."""
    monkeypatch.setattr(thread_leaks, "GRACE_SECONDS", 0.1)
    over = threading.Event()

    def call(daemon=False):
        thread = threading.Thread(target=over.wait, name="forgotten", daemon=daemon)
        thread.start()
        return thread

    yield call
    over.set()


def test_a_leaked_thread_is_reported_with_its_place(begin):
    before = begin()
    leaks = ThreadLeaks()
    thread = begin()
    assert leaks.find() == (thread,), "not the one that was there before"
    finding = finding_of(leaks.find())
    assert (finding.verdict, finding.check) == (Verdict.LEAK, "threads")
    assert finding.got.startswith("forgotten in ")
    assert "threading.py:" in finding.got
    assert before.is_alive()


def test_a_thread_may_take_a_moment_to_end(monkeypatch):
    monkeypatch.setattr(thread_leaks, "GRACE_SECONDS", 5.0)
    leaks = ThreadLeaks()
    threading.Thread(target=time.sleep, args=[0.1]).start()
    assert leaks.find() == ()


def test_daemons_and_pools_are_no_leak(begin):
    leaks = ThreadLeaks()
    begin(daemon=True)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        assert leaks.find() == ()
