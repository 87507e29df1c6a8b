"""Signals: the first raises, the others do not."""

import os
import signal
import subprocess
import sys
import time

import pytest

from conformance.core.signals import interruptible


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_before_the_command_has_begun_it_exits_by_2(number):
    code = (
        "import os, sys; from conformance.core import signals; signals.leave_at_once(); "
        f"os.kill(os.getpid(), {int(number)}); import time; time.sleep(9)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "conformance: interrupted\n")
