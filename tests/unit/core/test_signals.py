"""Signals: the first raises, the others do not."""

import importlib
import os
import signal
import subprocess
import sys
import time

import pytest

from conformance.core.signals import beginning, came_of, interruptible


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_raises_and_a_second_soon_after_does_not(number):
    before = signal.getsignal(number)
    ended = False
    with interruptible():
        try:
            os.kill(os.getpid(), number)
            time.sleep(5)
        except KeyboardInterrupt:
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
            os.kill(os.getpid(), number)
            assert child.wait(20) == -signal.SIGKILL, "it waits for no process"
            ended = True
    assert ended
    assert signal.getsignal(number) is before


def test_one_that_comes_where_python_drops_exceptions_comes_again():
    class Dropped:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(100):  # the signal is handled between two of these
                pass

    with interruptible(), pytest.raises(KeyboardInterrupt):  # noqa: PT012
        Dropped()
        time.sleep(5)


def test_one_that_comes_during_an_import_comes_again_afterwards(tmp_path, monkeypatch):
    body = (
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nfor _ in range(100):\n    pass\n"
    )
    (tmp_path / "imported_meanwhile.py").write_text(body + "whole = True\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    imported = []
    with interruptible(), pytest.raises(KeyboardInterrupt):  # noqa: PT012
        imported.append(importlib.import_module("imported_meanwhile"))
        time.sleep(5)
    assert imported[0].whole, "the import was not broken off"


def test_before_the_work_begins_a_signal_ends_the_process():
    code = (
        "import os, signal, time; from conformance.core.signals import beginning, interruptible\n"
        "with interruptible():\n"
        "    with beginning():\n"
        "        os.kill(os.getpid(), signal.SIGINT); time.sleep(9)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "conformance: interrupted\n")


def test_afterwards_the_handlers_are_those_of_before():
    with interruptible():
        before = signal.getsignal(signal.SIGINT)
        with beginning():
            assert signal.getsignal(signal.SIGINT) is not before
        assert signal.getsignal(signal.SIGINT) is before


def test_an_interruption_that_python_makes_another_error_of_is_known():
    class Interrupted:
        def __set_name__(self, owner, name):
            raise KeyboardInterrupt

    try:
        type("Owner", (), {"name": Interrupted()})
    except KeyboardInterrupt as error:  # Python 3.12 and newer
        found = error
    except RuntimeError as error:
        found = error
    assert came_of(found)
    assert not came_of(RuntimeError("another"))


TWO_SIGNALS = """
import multiprocessing, os, signal, sys, time
from conformance.core.signals import interruptible
with interruptible():
    counted = multiprocessing.get_context("spawn").Semaphore()
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
    except KeyboardInterrupt:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.2)
print("ended")
"""


def test_a_second_one_leaves_the_count_of_semaphores_alone():
    done = subprocess.run(
        [sys.executable, "-c", TWO_SIGNALS], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("ended\n", "", 0)
