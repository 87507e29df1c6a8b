"""One sentence for each engine, and who is at fault."""

import pytest
from miniatures import wrong
from miniatures.library import ToyLibrary
from miniatures.model import VOCAB
from miniatures.right import AllAtOnce, ContinuousBatching

from conformance.core.errors import ModelError
from conformance.core.family import Facts, Family
from conformance.run.registry import Registry
from conformance.scenarios import LADDER
from conformance.tools.smoke import State, smoke


def smoked(kind, library=ToyLibrary, **more):
    kind = type(kind.__name__, (kind,), {"name": "tested"})
    registry = Registry(
        libraries={"toy": library()},
        families={("toy", "calm"): Family("calm", Facts(library="toy"), {"vocab_size": VOCAB})},
        engines={"tested": kind},
        scenarios={scenario.name: scenario for scenario in LADDER},
        faults={},
        plugins=(),
    )
    return smoke(registry, "tested", "calm", **more)


@pytest.mark.parametrize("kind", [ContinuousBatching, AllAtOnce])
def test_a_right_engine_is_fine(kind):
    found = smoked(kind)
    assert found.state is State.FINE
    assert (
        str(found) == "tested on calm: fine: 2 rows gave what each gives as a single stream (exact)"
    )


@pytest.mark.parametrize("kind", [wrong.AttendsToPadding, wrong.RowZeroOffset, wrong.NanInPadding])
def test_wrong_numbers_are_the_engine_s(kind):
    assert smoked(kind).state is State.WRONG


def test_the_first_difference_is_reported_with_the_command():
    found = smoked(wrong.AttendsToPadding, options=["-p", "mine"])
    assert "engine wrong: diverged: request 'r2': output token 0 is" in str(found)
    again = "again: conformance smoke --engine tested --family calm -p mine"
    assert str(found).endswith(again)


@pytest.mark.parametrize(
    "kind",
    [
        wrong.LosesFirstToken,
        wrong.RepeatsToken,
        wrong.YieldsAfterFinish,
        wrong.YieldsAfterRemoval,
        wrong.YieldsForAStranger,
        wrong.HidesLogprobs,
        wrong.NeverEnds,
    ],
)
def test_a_breach_of_the_protocol_is_the_adapter_s(kind):
    assert smoked(kind).state is State.BROKEN


def test_a_refusal_is_nobody_s_fault():
    class Refuses(ContinuousBatching):
        def insert(self, submissions):
            raise NotImplementedError("batches of this model are not supported")

    found = smoked(Refuses)
    assert found.state is State.UNSUPPORTED
    assert "batches of this model are not supported" in found.what


def test_a_model_that_can_t_be_loaded_is_no_fault_of_the_engine():
    class Broken(ToyLibrary):
        def load(self, family, *, dtype, seed):
            raise ModelError("calm: no weights")

    found = smoked(ContinuousBatching, Broken)
    assert (found.state, found.what) == (State.MODEL, "calm: no weights")


def test_nor_is_one_that_fails_alone():
    class Fails(ToyLibrary):
        def single_stream(self, *args, **more):
            raise ZeroDivisionError("no heads")

    found = smoked(ContinuousBatching, Fails)
    assert found.state is State.MODEL
    assert "ZeroDivisionError: no heads" in found.what
