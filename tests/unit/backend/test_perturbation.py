"""Monte Carlo arithmetic: embeddings and layers move by about one unit in the last place."""

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn

from conformance.backend.perturbation import perturbed, perturbed_outside

EPS = {mx.float32: 2.0**-23, mx.bfloat16: 2.0**-7, mx.float16: 2.0**-10}


class Layer(nn.Module):
    """Returns its input, by itself or with a count."""

    def __init__(self, *, pair=False):
        super().__init__()
        self.pair = pair

    def __call__(self, x):
        return (x, 3, mx.array([1, 2])) if self.pair else x


class Model(nn.Module):
    """An embedding and two layers that do nothing, so that only the noise moves."""

    def __init__(self, dtype=mx.float32):
        super().__init__()
        self.embed = nn.Embedding(8, 4)
        self.embed.weight = mx.ones((8, 4), dtype)
        self.layers = [Layer(), Layer(pair=True)]

    def __call__(self, tokens):
        x = self.layers[0](self.embed(tokens))
        return self.layers[1](x)[0]


TOKENS = mx.array([[1, 2, 3]])


def noisy(model, *, ulps=1.0, seed=0):
    with perturbed(model, ulps=ulps, seed=seed):
        return np.array(model(TOKENS).astype(mx.float32))


@pytest.mark.parametrize("dtype", list(EPS), ids=str)
@pytest.mark.parametrize("ulps", [1.0, 4.0])
def test_each_output_moves_by_units_in_the_last_place_of_its_dtype(dtype, ulps):
    moved = np.abs(noisy(Model(dtype), ulps=ulps) - 1)
    assert moved.max() > 0
    # Three places of noise, and rounding to the dtype after each.
    assert moved.max() <= 3.01 * (ulps + 0.5) * EPS[dtype]


def test_the_embedding_and_each_layer_is_reached():
    model = Model()
    base = np.array(model(TOKENS))
    for name in ("embed", "layers"):
        single = Model()
        if name == "embed":
            single.layers = [_Plain(), _Plain(pair=True)]
        else:
            single.embed = _PlainEmbedding()
        assert not np.array_equal(noisy(single), base)


class _Plain:
    """A layer that is no module: nothing to perturb."""

    def __init__(self, *, pair=False):
        self.pair = pair

    def __call__(self, x):
        return (x, 0) if self.pair else x


class _PlainEmbedding:
    """An embedding that is no module."""

    def __call__(self, tokens):
        return mx.ones((*tokens.shape, 4))


def test_the_same_seed_gives_the_same_numbers_and_another_others():
    model = Model()
    assert np.array_equal(noisy(model, seed=3), noisy(model, seed=3))
    assert not np.array_equal(noisy(model, seed=3), noisy(model, seed=4))


def test_each_call_draws_anew():
    model = Model()
    with perturbed(model, ulps=1.0, seed=0):
        one, two = np.array(model(TOKENS)), np.array(model(TOKENS))
    assert not np.array_equal(one, two)


def test_classes_are_restored_even_after_an_exception():
    model = Model()

    def fail():
        with perturbed(model, ulps=1.0, seed=0):
            assert type(model.layers[0]) is not Layer
            assert isinstance(model.layers[0], Layer)
            raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        fail()
    assert type(model.embed) is nn.Embedding
    assert [type(layer) for layer in model.layers] == [Layer, Layer]
    assert np.array_equal(np.array(model(TOKENS)), np.ones((1, 3, 4)))


def test_what_is_no_floating_array_is_left_unchanged():
    model = Model()
    with perturbed(model, ulps=1.0, seed=0):
        _, count, whole = model.layers[1](mx.ones((1, 2)))
    assert count == 3
    assert whole.tolist() == [1, 2]


def test_a_layer_that_is_listed_twice_is_perturbed_once_and_restored():
    model = Model()
    model.layers = [model.layers[0], model.layers[0], model.layers[1]]
    with perturbed(model, ulps=1.0, seed=0):
        assert type(model.layers[0]).__mro__.count(Layer) == 1
        assert type(model.layers[0]).__mro__[1] is Layer
    assert type(model.layers[0]) is Layer


class WithEncoder(nn.Module):
    """A model of text with an encoder beside it, in which no list holds the layers."""

    def __init__(self):
        super().__init__()
        self.encoder = Layer()
        self.text = Model()


def test_outside_of_a_part_every_module_moves_and_nothing_in_it():
    whole = WithEncoder()
    kinds = [type(module) for module in whole.modules()]
    with perturbed_outside(whole, whole.text, ulps=2.0, seed=1):
        pictures = np.array(whole.encoder(mx.ones((4, 4))))
        text = np.array(whole.text(TOKENS))
    assert 0 < np.abs(pictures - 1).max() <= 2.5 * EPS[mx.float32]
    assert (text == 1).all()
    assert [type(module) for module in whole.modules()] == kinds
