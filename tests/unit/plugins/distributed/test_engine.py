"""What an engine makes of the replies of its processes; the processes are played here."""

from pathlib import Path

import pytest

from conformance.core.engine_options import EngineOptions
from conformance.core.errors import Unsupported
from conformance.core.failures import FailedElsewhere, failure_of, says_unsupported
from conformance.core.family import Facts, Family, load_families
from conformance.core.origin import Origin
from conformance.core.phases import ForwardCall
from conformance.core.schedule import Stage
from conformance.core.trace import Failure, StepOutput, TokenEvent
from conformance.plugins import mlx_lm
from conformance.plugins.distributed import engine as module
from conformance.plugins.distributed.engine import Pipeline, Pipeline3, TensorParallel3, in_thirds
from conformance.plugins.distributed.messages import PIPELINE, TENSOR, Reply, State

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


FAMILIES = {f.name: f for f in load_families(Path(mlx_lm.__file__).parent / "families")}


def test_heads_and_widths_are_half_as_much_again_at_any_depth():
    text = {"num_attention_heads": 4, "head_dim": 16, "hidden_size": 64}
    config = {"vocab_size": 8, "text": text}
    found = in_thirds(Family("a", Facts(module="a"), config), TENSOR)
    assert found.name == "a-tensor-thirds"
    assert found.config["text"] == {"num_attention_heads": 6, "head_dim": 16, "hidden_size": 64}


def test_without_a_size_of_heads_the_hidden_size_makes_it():
    found = in_thirds(FAMILIES["qwen2"], TENSOR).config
    assert found["hidden_size"] / found["num_attention_heads"] == 16


@pytest.mark.parametrize(
    ("family", "layers"), [("qwen2", 3), ("bailing_hybrid", 9), ("llama", 4), ("qwen3_next", 4)]
)
def test_a_pipeline_of_three_has_a_layer_for_each(family, layers):
    found = in_thirds(FAMILIES[family], PIPELINE)
    assert found.config["num_hidden_layers"] == layers
    assert (found == FAMILIES[family]) == (layers == 4)


def test_one_family_has_fewer_heads_of_keys_than_processes():
    assert in_thirds(FAMILIES["qwen3_5_moe"], TENSOR).config["text_config"][
        "num_key_value_heads"
    ] == 1  # fmt: skip


def test_only_the_engines_of_three_play_them():
    qwen2 = FAMILIES["qwen2"]
    assert Pipeline.variant(qwen2) is qwen2
    assert TensorParallel3.variant(qwen2).name == "qwen2-tensor-thirds"
    assert Pipeline3.variant(qwen2).name == "qwen2-pipeline-thirds"
