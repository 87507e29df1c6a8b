"""While a case is played, the process's threads share one core."""

import contextlib
import os
import sys
import threading
from pathlib import Path

import mlx.core as mx
import pytest

from conformance.backend import one_cpu
from conformance.backend.one_cpu import on_one_cpu

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only there")


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(mx.cpu, 0))


def places():
    """The cores and the policy of each thread."""
    found = set()
    for path in Path("/proc/self/task").iterdir():
        task = int(path.name)
        with contextlib.suppress(ProcessLookupError):  # a thread of an earlier test that just ended
            found.add((frozenset(os.sched_getaffinity(task)), os.sched_getscheduler(task)))
    return found


def test_all_threads_share_a_core_and_are_free_again_after_it():
    mx.eval(mx.zeros(3) + 1)  # mlx's own thread is there
    before = places()
    with on_one_cpu():
        ((cpus, policy),) = places()
        assert len(cpus) == 1
        assert policy == os.SCHED_BATCH
        stop = threading.Event()
        late = threading.Thread(target=stop.wait)
        late.start()
    assert places() == before
    stop.set()
    late.join()


def test_a_failure_frees_them_too():
    before = places()
    with pytest.raises(KeyError), on_one_cpu():
        raise KeyError
    assert places() == before


def test_a_block_in_a_block_is_the_same_block():
    before = places()
    with on_one_cpu():
        outer = places()
        with on_one_cpu():
            assert places() == outer
        assert places() == outer
    assert places() == before


def test_on_other_devices_and_systems_nothing_is_moved(monkeypatch):
    before = places()
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(mx.gpu, 0))
    with on_one_cpu():
        assert places() == before
    monkeypatch.undo()
    monkeypatch.setattr(one_cpu.sys, "platform", "darwin")
    with on_one_cpu():
        assert places() == before


def test_where_it_is_forbidden_the_block_runs_as_ever(monkeypatch):
    def refuse(*arguments):
        raise PermissionError

    before = places()
    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    with on_one_cpu():
        assert places() == before
