"""What a worker makes of an item: the child process may do anything but take the worker with it."""

import operator
import os
import signal
import time

import psutil
import pytest

from conformance.app.cluster.worker import Ended, difference, do_apart, facts

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


# What must be the same on all machines -----------------------------------------------------------


def test_versions_and_code_are_known():
    assert {"Python", "mlx", "mlx-lm", "source of mlx-conformance"} <= facts().keys()
    assert all(facts().values())


def test_another_version_and_a_missing_one_are_said_in_a_sentence():
    mine = {"mlx": "1", "numpy": "2"}
    assert difference(mine, dict(mine), "w") == ""
    assert difference(mine, mine | {"mlx": "0"}, "tcp://w") == (
        "worker tcp://w has mlx 0, this machine 1: make them the same"
    )
    assert "has numpy none" in difference(mine, {"mlx": "1"}, "w")
