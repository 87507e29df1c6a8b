"""What a worker makes of an item: the child process may do anything but take the worker with it."""

import operator
import os
import signal
import time

import psutil
import pytest

from conformance.app.cluster.worker import Ended, do_apart

pytest.importorskip("distributed")


def always():
    return True


def test_the_result_of_the_child_is_given():
    assert do_apart(operator.neg, 3, always) == -3


def test_a_child_that_is_killed_or_raises_ended_and_says_how():
    killed = do_apart(signal.raise_signal, signal.SIGKILL, always)
    assert killed == Ended("signal SIGKILL")
    raised = do_apart(operator.neg, "text", always)
    assert raised.how.startswith("exit status 1: TypeError: bad operand")


def test_what_nobody_waits_for_any_more_is_ended():
    assert do_apart(time.sleep, 600, lambda: False) == Ended("signal SIGKILL")
    assert not [
        child
        for child in psutil.Process(os.getpid()).children(recursive=True)
        if "conformance.app.cluster.child" in child.cmdline()
    ]
