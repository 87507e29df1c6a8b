"""Weights: the same bits everywhere, one stream per parameter, large enough by default."""

import numpy as np
import pytest

from conformance.core.errors import FamilyError
from conformance.core.family import Recipe, WeightRule
from conformance.core.weights import draw, make_packed, make_weights

GOLDEN_DRAW = [-1.2760184486384307, -0.37682465236193835, 0.06742037369724399]
GOLDEN_BITS = [3213593263, 1069575046, 3211898962]
GOLDEN_BYTES = [148, 31, 159]

SHAPES = {
    "model.embed_tokens.weight": (32, 16),
    "model.layers.0.self_attn.q_proj.weight": (16, 16),
    "model.layers.0.mlp.experts.up_proj.weight": (4, 8, 16),
    "model.layers.0.mixer.conv1d.weight": (16, 4, 1),
    "model.layers.0.mixer.A_log": (256,),
    "model.layers.0.input_layernorm.weight": (256,),
    "model.norm.weight": (16,),
    "lm_head.weight": (32, 16),
}


def test_golden_numbers():
    """These bits may never change: every golden file depends on them."""
    assert draw("model.norm.weight", (3,), seed=0).tolist() == GOLDEN_DRAW
    drawn = make_weights(SHAPES, Recipe(), seed=0)["model.embed_tokens.weight"]
    assert drawn.dtype == np.float32
    assert drawn.view(np.uint32)[0, :3].tolist() == GOLDEN_BITS
    assert make_packed("w", (3,), np.uint8, seed=0).tolist() == GOLDEN_BYTES


def test_draws_have_mean_zero_variance_one_and_bounds():
    numbers = draw("x", (100_000,), seed=3)
    assert abs(numbers.mean()) < 0.01
    assert abs(numbers.var() - 1.0) < 0.01
    assert np.abs(numbers).max() < 3.4642


def test_another_parameter_shifts_none():
    before = make_weights(SHAPES, Recipe(), seed=0)
    after = make_weights({"a.new.weight": (7, 7), **SHAPES}, Recipe(), seed=0)
    for path, value in before.items():
        np.testing.assert_array_equal(after[path], value)


def test_seed_and_path_both_decide():
    assert not np.array_equal(draw("a", (8,), seed=0), draw("a", (8,), seed=1))
    assert not np.array_equal(draw("a", (8,), seed=0), draw("b", (8,), seed=0))


@pytest.mark.parametrize(
    ("path", "mean", "std"),
    [
        ("model.embed_tokens.weight", 0.0, 1.0),
        ("model.layers.0.self_attn.q_proj.weight", 0.0, 1.5 / 4),
        ("model.layers.0.mlp.experts.up_proj.weight", 0.0, 1 / 4),
        ("model.layers.0.mixer.conv1d.weight", 0.0, 2 / 2),
        ("model.layers.0.mixer.A_log", -2.5, 0.7),
        ("model.layers.0.input_layernorm.weight", 1.0, 0.1),
        ("lm_head.weight", 0.0, 3 / 4),
    ],
)
def test_default_rules(path, mean, std):
    drawn = make_weights(SHAPES, Recipe(), seed=0)[path]
    assert drawn.shape == SHAPES[path]
    assert abs(drawn.mean() - mean) < 0.35 * std
    assert drawn.std() == pytest.approx(std, rel=0.25)


def test_a_familys_rule_comes_first_and_knobs_scale():
    recipe = Recipe(embedding_std=0.25, logit_scale=2.0, rules=(WeightRule("*A_log", mean=7.0),))
    drawn = make_weights(SHAPES, recipe, seed=0)
    plain = make_weights(SHAPES, Recipe(), seed=0)
    assert set(drawn["model.layers.0.mixer.A_log"].tolist()) == {7.0}
    np.testing.assert_allclose(drawn["lm_head.weight"], 2 * plain["lm_head.weight"], rtol=1e-6)
    embedding = "model.embed_tokens.weight"
    np.testing.assert_allclose(drawn[embedding], plain[embedding] / 4, rtol=1e-6)


def test_tied_head_gets_a_final_norm_of_random_signs():
    shapes = {path: shape for path, shape in SHAPES.items() if path != "lm_head.weight"}
    shapes["model.norm.weight"] = (256,)
    norm = make_weights(shapes, Recipe(), seed=0)["model.norm.weight"]
    assert abs(norm.mean()) < 0.05
    centred = Recipe(rules=(WeightRule("*norm.weight", std=0.1),))
    plus_one = make_weights(shapes, centred, seed=0)["model.norm.weight"]
    np.testing.assert_allclose(plus_one + 1, norm, atol=1e-6)


def test_sign_vectors_hold_signs_only():
    drawn = make_weights({"layer.signs": (64,)}, Recipe(), seed=0)["layer.signs"]
    assert set(drawn.tolist()) == {-1.0, 1.0}


def test_a_rule_that_matches_nothing_is_an_error():
    with pytest.raises(FamilyError, match=r"'\*nothing' matches no parameter"):
        make_weights(SHAPES, Recipe(rules=(WeightRule("*nothing"),)), seed=0)
