"""A device that computes nothing more, as after an illegal memory access on CUDA."""

import mlx.core as mx
import msgspec
import pytest
from results_by_hand import make_result

from conformance.app.pytest_plugin.lost_device import CHECK, by_itself, lost, refusal, with_device
from conformance.core.verdict import Finding, Verdict

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
