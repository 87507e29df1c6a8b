"""A call that ends its process, or takes too much, ends neither this one nor goes on after it."""

import os
import signal
import subprocess
import sys
import time
from operator import mul
from types import ModuleType

import psutil
import pytest

from conformance.core import guarded_call as module
from conformance.core.guarded_call import EndedError, Limits, NotBegunError, guarded_call
from conformance.core.processes import Child

LIMITS = Limits(60, 2**30)


@pytest.fixture
def _no_process_is_left():
    """Of the call: what other tests have started in this process may go on."""
    before = set(psutil.Process().children())
    yield
    assert not set(psutil.Process().children()) - before


@pytest.fixture(params=[True, False], ids=["forked", "started"])
def _either(request, monkeypatch):
    if request.param and not module.FORKS:
        pytest.skip("no fork is safe here")
    monkeypatch.setattr(module, "FORKS", request.param)


@pytest.mark.usefixtures("_either")
def test_the_answer_is_what_the_function_returns():
    assert guarded_call(mul, b"ab", 2, limits=LIMITS) == b"abab"


@pytest.mark.usefixtures("_no_process_is_left", "_either")
@pytest.mark.parametrize(
    ("function", "arguments", "limits", "text"),
    [
        (os.abort, (), LIMITS, "ends its process by signal SIGABRT"),
        (signal.raise_signal, (signal.SIGSEGV,), LIMITS, "ends its process by signal SIGSEGV"),
        (signal.raise_signal, (signal.SIGKILL,), LIMITS, "takes more memory than the machine has"),
        (os._exit, (3,), LIMITS, "ends its process by exit status 3"),
        (os._exit, (0,), LIMITS, "ends its process by exit status 0"),
        (time.sleep, (60,), Limits(0.5, 2**30), "takes more than 0.5 seconds"),
        (mul, (b"x", 2**30), Limits(60, 2**26), "takes more than 0.0671 GB of memory"),
    ],
)
def test_the_end_of_its_process_is_said(function, arguments, limits, text, capfd):
    began = time.monotonic()
    with pytest.raises(EndedError, match=text):
        guarded_call(function, *arguments, limits=limits)
    assert time.monotonic() - began < 30
    assert capfd.readouterr() == ("", ""), "nothing is printed, by faulthandler either"


@pytest.mark.usefixtures("_either")
def test_what_it_printed_last_is_part_of_the_reason():
    with pytest.raises(EndedError, match=r"exit status 1 \(TypeError: .+\)"):
        guarded_call(mul, b"x", b"y", limits=LIMITS)


@pytest.mark.usefixtures("_no_process_is_left", "_either")
def test_ctrl_c_ends_the_call(monkeypatch):
    def interrupted(child, seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(Child, "over", interrupted)
    with pytest.raises(KeyboardInterrupt):
        guarded_call(time.sleep, 60, limits=LIMITS)


def test_a_process_that_is_killed_takes_the_call_with_it(tmp_path):
    code = (
        "import time; from conformance.core.guarded_call import *; "
        "guarded_call(time.sleep, 60, limits=Limits(60, 2**30))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    until = time.monotonic() + 20
    while not list(tmp_path.glob("*/begun")):
        assert time.monotonic() < until
        time.sleep(0.02)
    (child,) = psutil.Process(process.pid).children()
    process.kill()
    process.wait()
    psutil.wait_procs([child], timeout=20)
    assert not child.is_running()


def test_a_function_that_only_this_process_has_is_not_called(monkeypatch):
    monkeypatch.setattr(module, "FORKS", False)
    with pytest.raises(NotBegunError):
        guarded_call(lambda: b"", limits=LIMITS)
    own = ModuleType("only_here")
    exec("def function(): return b''", vars(own))
    monkeypatch.setitem(sys.modules, "only_here", own)
    with pytest.raises(NotBegunError, match="No module named 'only_here'"):
        guarded_call(own.function, limits=LIMITS)
