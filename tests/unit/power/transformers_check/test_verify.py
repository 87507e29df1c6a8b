"""A family verified: what is right agrees, and each planted wrong is seen."""

import msgspec
import numpy as np
import pytest

pytest.importorskip("torch", reason="an optional extra: mlx-conformance[transformers]")

from safetensors.numpy import load_file, save_file

from conformance.core.errors import ModelError
from conformance.power.transformers_check import transformers_model, verify
from conformance.power.transformers_check.check_results import State
from conformance.power.transformers_check.known_differences import Adjustment, Cause, Known
from conformance.run.registry import build_registry

REGISTRY = build_registry()
LIBRARY = REGISTRY.libraries["mlx_lm"]


def family(name):
    return REGISTRY.families["mlx_lm", name]


def verified(name="llama", known=None, library=LIBRARY):
    return verify.verify(family(name), library, known or Known())


@pytest.fixture(scope="module")
def right():
    return verified()


def test_what_is_right_agrees_in_every_way(right):
    assert right.state is State.AGREES
    assert right.tokens == right.library_tokens
    assert len(right.tokens) == 8
    assert right.prompt >= 24
    assert {right.reading.place, right.stream.place, right.generated.place} == {None}
    assert right.effective == right.parameters > 30


@pytest.mark.parametrize("name", ["qwen3_moe", "mamba"])
def test_experts_and_states_agree_too(name):
    assert verified(name).state is State.AGREES


def test_one_weight_that_is_another_in_the_checkpoint_is_seen(monkeypatch):
    save = transformers_model.save

    def spoiled(model, folder, changes):
        save(model, folder, changes)
        path = folder / "model.safetensors"
        tensors = load_file(path)
        tensors["model.layers.0.mlp.up_proj.weight"][3, 5] += 0.1
        save_file(tensors, path, {"format": "pt"})

    monkeypatch.setattr(transformers_model, "save", spoiled)
    found = verified()
    assert found.state is State.DISAGREES
    assert not found.expected
    assert found.reading.ratio > 20


def test_another_rope_base_on_one_side_is_seen_and_explains_itself():
    off = {"rope_theta": 1010.0}
    cause = Cause(wrong="mlx_lm", at="a:1", what="w", transformers={"rope_theta": 1000.0})
    found = verified(known=Known(adjust=(Adjustment(why="y", transformers=off),)))
    assert (found.state, found.expected) == (State.DISAGREES, False)
    known = Known(adjust=(Adjustment(why="y", transformers=off),), cause=(cause,))
    found = verified(known=known)
    assert (found.state, found.expected) == (State.DISAGREES, True)
    assert found.proof.place is None


def test_an_epsilon_is_seen():
    change = Adjustment(why="y", modules={"*layernorm.variance_epsilon": 1e-6})
    found = verified(known=Known(adjust=(change,)))
    assert found.state is State.DISAGREES


def test_a_cause_that_explains_something_else_explains_nothing():
    off = Adjustment(why="y", transformers={"rope_theta": 1010.0})
    cause = Cause(wrong="mlx_lm", at="a:1", what="w", transformers={"rms_norm_eps": 1e-5})
    assert not verified(known=Known(adjust=(off,), cause=(cause,))).expected


def test_a_cause_that_no_longer_shows_is_reported():
    cause = Cause(wrong="mlx_lm", at="a:1", what="w", both={"rope_theta": 1000.0})
    assert not verified(known=Known(cause=(cause,))).expected


def test_a_single_stream_that_differs_from_its_own_passes_is_seen():
    class Forgetful(type(LIBRARY)):
        def single_stream(self, model, request, **more):
            return super().single_stream(
                model, msgspec.structs.replace(request, prompt=request.prompt[1:]), **more
            )

    found = verified(library=Forgetful())
    assert found.state is State.DISAGREES
    assert found.reading.place is None
    assert found.stream.place is not None


def test_nan_is_no_agreement():
    change = Adjustment(why="y", weights={"model.norm.weight": float("nan")})
    found = verified(known=Known(adjust=(change,)))
    assert found.state is State.UNLOADABLE
    assert "not finite" in found.words


def test_agreement_of_an_insensitive_model_does_not_count():
    change = Adjustment(why="y", weights={"*_proj.weight": 0.0})
    found = verified(known=Known(adjust=(change,)))
    assert found.state is State.INSENSITIVE
    assert not found.verified


def test_what_cannot_be_loaded_or_built_or_is_missing_is_reported():
    renamed = Adjustment(why="y", rename={"^model": "nodel"})
    found = verified(known=Known(adjust=(renamed,)))
    assert found.state is State.UNLOADABLE
    assert "nodel" in found.words
    huge = Adjustment(why="y", transformers={"hidden_size": 8192, "head_dim": 1024})
    found = verified(known=Known(adjust=(huge,)))
    assert found.state is State.UNBUILDABLE
    assert "million parameters" in found.words
    assert verified("exaone").state is State.ABSENT
    assert verified("llama", Known(absent="other layers")).words == "other layers"


def test_the_config_that_transformers_writes_is_read_too(right):
    assert right.saved.place is not None  # mlx-lm reads no rope_parameters of llama
    assert verified("qwen3").saved.place is None


def test_weights_depend_on_nothing_but_seed_and_path():
    def drawn(seed):
        model = transformers_model.build(family("llama").config)
        transformers_model.fill(model, family("llama").facts.weights, seed=seed)
        return {name: value.detach().numpy() for name, value in model.named_parameters()}

    one, same, other = drawn(0), drawn(0), drawn(1)
    assert all(np.array_equal(one[name], same[name]) for name in one)
    assert not any(np.array_equal(one[name], other[name]) for name in one)


def test_a_glob_that_matches_nothing_is_reported():
    model = transformers_model.build(family("llama").config)
    for change in (transformers_model.set_weights, transformers_model.set_attributes):
        with pytest.raises(ModelError, match="matches nothing"):
            change(model, {"*.nowhere.weight": 0.0})
