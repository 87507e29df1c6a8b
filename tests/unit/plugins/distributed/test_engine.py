"""What an engine makes of the replies of its processes; the processes are played here."""

from pathlib import Path

import pytest

from conformance.core.engine_options import EngineOptions
from conformance.core.errors import Unsupported
from conformance.core.failures import FailedElsewhere, failure_of, says_unsupported
from conformance.core.family import Facts, Family
from conformance.core.forward_calls import ForwardCall
from conformance.core.origin import Origin
from conformance.core.schedule import Stage
from conformance.core.trace import Failure, StepOutput, TokenEvent
from conformance.plugins.distributed import engine as module
from conformance.plugins.distributed.messages import Reply, State

FAMILY = Family("llama", Facts(), {"vocab_size": 8})


class PlayedGroup:
    """Answers each call with what a test says; ``asked`` are the names."""

    def __init__(self, replies):
        self.loaded = None
        self.folder = Path("unused")
        self.replies, self.asked = replies, []

    def call(self, call):
        self.asked.append((call.name, *call.args[:1]))
        return self.replies.pop(0) if call.name != "make" else (Reply(), Reply())


@pytest.fixture
def made(monkeypatch):
    def make(*replies):
        group = PlayedGroup(list(replies))
        group.loaded = (FAMILY, "float32", 0)
        ended = []

        class Groups:
            def get(self, size, how):
                return group

            def discard(self):
                ended.append(group)
                group.loaded = None

        monkeypatch.setattr(module, "groups", Groups)
        origin = Origin(None, FAMILY, "float32", 0, lambda folder: None)
        return module.TensorParallel(origin, EngineOptions()), origin, ended

    return make


def stepped(token, **more):
    return Reply(value=StepOutput((TokenEvent("a", token),)), **more)


def test_what_rank_0_gave_is_the_output_and_bytes_are_of_all(made):
    at = State(stages={"a": Stage.DECODE}, rows={"a": 0}, cache_bytes=100)
    calls = (ForwardCall(1, 1),)
    engine, origin, _ = made((stepped(3, state=at, forwards=calls), stepped(3, state=at)))
    output = engine.step()
    assert [event.token for event in output.events] == [3]
    assert [claim.holds for claim in output.claims] == [True]
    assert (engine.stages(), engine.rows()) == ({"a": Stage.DECODE}, {"a": 0})
    assert engine.cache_bytes() == 200
    assert origin.meter == [ForwardCall(1, 1)]


def test_a_rank_that_drew_another_token_is_a_claim_that_does_not_hold(made):
    engine, _, _ = made((stepped(3), stepped(4)))
    (claim,) = engine.step().claims
    assert (claim.what, claim.said, claim.found) == ("tokens of rank 1", "a 4", "a 3")
    assert not claim.holds


def test_an_exception_in_a_process_is_raised_here_with_its_place(made):
    failure = Failure("ValueError", "no", "mlx_lm/generate.py:1", "step")
    engine, _, ended = made((stepped(3), Reply(failure=failure)))
    with pytest.raises(FailedElsewhere) as raised:
        engine.step()
    assert len(ended) == 1
    found = failure_of(raised.value, "step 0")
    assert (found.type_name, found.frame, found.doing) == (
        "ValueError",
        "mlx_lm/generate.py:1",
        "step 0",
    )
    assert not says_unsupported(raised.value)
    engine.close()  # there is nobody to ask any more


def test_what_the_library_refuses_there_is_refused_here(made):
    refused = Failure("ValueError", "The model does not support pipelining", "x:1", "load", True)
    assert says_unsupported(FailedElsewhere(refused))


def test_real_checkpoints_are_refused(made, monkeypatch):
    monkeypatch.setattr(Family, "checkpoint", object(), raising=False)
    with pytest.raises(Unsupported, match="real checkpoints"):
        made()


@pytest.mark.parametrize(("passes", "gone"), [((True, True), 0), ((True, False), 1)])
def test_a_group_whose_ring_is_not_empty_is_not_used_again(made, passes, gone):
    engine, _, ended = made(tuple(Reply(value=value) for value in passes))
    engine.close()
    assert len(ended) == gone
