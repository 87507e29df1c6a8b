"""What a worker may take of a GPU's own memory, and the end of one that takes too much.

The GPU is played by the CPU: its memory is that of mlx's arrays there, too.
"""

import subprocess
import sys
from types import SimpleNamespace

import mlx.core as mx
import msgspec
import pytest
from results_by_hand import make_result

from conformance.app.pytest_plugin import device_memory
from conformance.app.pytest_plugin.device_memory import (
    CHECK,
    by_itself,
    device_limit,
    lost,
    refusal,
    taken_of_device,
    watch_device_memory,
    with_device,
    without_device,
)
from conformance.app.pytest_plugin.worker_crashes import condense
from conformance.backend import memory
from conformance.core.memory_limit import LEAST
from conformance.core.verdict import Finding, Verdict

GROWS = """\
import faulthandler, sys, time
import mlx.core as mx
from conformance.app.pytest_plugin.device_memory import watch_device_memory

def grows():
    kept = []
    while len(kept) < int(sys.argv[3]):
        kept.append(mx.zeros(2**18) + len(kept))
        mx.eval(kept[-1])
        time.sleep(0.01)

with open(sys.argv[1], "w") as file:
    faulthandler.enable(file=file)
    watch_device_memory(int(sys.argv[2]), file)
    grows()
"""


def test_a_worker_that_takes_too_much_ends_and_says_what_it_took(tmp_path):
    path = tmp_path / "crash"
    done = subprocess.run([sys.executable, "-c", GROWS, path, str(2**26), "600"], check=False)
    assert done.returncode == -6
    text = path.read_text()
    taken, limit = taken_of_device(text)
    assert limit == 2**26 < taken < 2**29
    assert condense(without_device(text)).startswith("Aborted in "), "the main thread's frame"
    assert ", grows" in condense(without_device(text))


def test_one_that_takes_less_goes_on(tmp_path):
    path = tmp_path / "crash"
    done = subprocess.run([sys.executable, "-c", GROWS, path, str(2**40), "100"], check=False)
    assert done.returncode == 0
    assert taken_of_device(path.read_text()) is None


def test_no_limit_watches_nothing(monkeypatch):
    monkeypatch.setattr(device_memory.threading, "Thread", None)
    watch_device_memory(0, None)


@pytest.mark.parametrize(
    ("given", "processes", "limit"),
    [(None, 4, 16 * 10**9), (None, 1000, LEAST), (3.5, 4, 3.5e9), (0.0, 4, 0)],
)
def test_processes_share_a_gpu_as_they_share_the_machine(monkeypatch, given, processes, limit):
    monkeypatch.setattr(device_memory, "own_memory", lambda: 80 * 10**9)
    assert device_limit(given, processes) == limit


def test_a_device_without_memory_of_its_own_has_no_limit():
    assert memory.own_memory() == 0
    assert device_limit(3.5, 1) == 0


def test_a_gpu_that_is_not_metals_has_its_own(monkeypatch):
    gpu = SimpleNamespace(type=mx.DeviceType.gpu)
    monkeypatch.setattr(memory.mx, "default_device", lambda: gpu)
    monkeypatch.setattr(memory.mx, "device_info", lambda _: {"total_memory": 99})
    assert memory.own_memory() == 99
    monkeypatch.setattr(memory.mx.metal, "is_available", lambda: True)
    assert memory.own_memory() == 0


# A device that computes nothing more, as after an illegal memory access on CUDA ------------------

CASE = "toy/a/ragged/float32/0"
REFUSED = "RuntimeError: Failed to load compiled gather_float32_uint32_1 kernel: ."
WORDS = "cudaStreamSynchronize(stream) failed: an illegal memory access was encountered"


def exact():
    return make_result(CASE, Verdict.EXACT)


def says(got):
    finding = Finding(Verdict.CRASH, "failure", "raised", expected="no exception", got=got)
    return msgspec.structs.replace(make_result(CASE, Verdict.CRASH), evidence=(finding,))


@pytest.fixture
def no_device(monkeypatch):
    def fails(*_):
        raise RuntimeError(WORDS)

    monkeypatch.setattr(mx, "eval", fails)


def test_a_device_that_computes_is_not_lost():
    assert not lost()
    assert not lost(exact())
    assert not lost(says("IndexError: list index out of range"))
    assert with_device(exact()) == exact()


def test_a_result_may_say_that_it_is_lost():
    assert lost(says(f"RuntimeError: {WORDS}"))


@pytest.mark.usefixtures("no_device")
def test_a_computation_shows_what_no_result_says():
    assert lost()
    assert lost(exact())
    found = with_device(exact())
    assert (found.verdict, found.expected) == (Verdict.CRASH, False)
    assert (found.evidence[0].check, found.evidence[0].got) == (CHECK, WORDS)


@pytest.mark.usefixtures("no_device")
def test_what_is_said_is_not_said_twice():
    assert with_device(says(WORDS)) == says(WORDS)


def test_a_refusal_is_one_while_the_device_computes():
    assert refusal(says(REFUSED)) == by_itself(REFUSED) == REFUSED
    assert refusal(exact()) == by_itself("") == ""


@pytest.mark.usefixtures("no_device")
def test_a_lost_device_loads_no_kernel_which_is_no_refusal_by_itself():
    """Such a case was played twice more, with all kernels compiled again: 45 s for one of 8 s."""
    assert by_itself(REFUSED) == ""
    assert refusal(with_device(says(REFUSED))) == ""
