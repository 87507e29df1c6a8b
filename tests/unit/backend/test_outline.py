"""Models of any size, from their modules alone."""

import mlx.core as mx
import mlx.nn as nn
import pytest

from conformance.backend.outline import outline


class Layer(nn.Module):
    """A layer that may slide, or carry a gate."""

    def __init__(self, *, slides=False, gate=False, width=8):
        super().__init__()
        self.slides = slides
        self.window = width
        self.proj = nn.Linear(width, width)
        if gate:
            self.gate = mx.zeros(width)


class Model(nn.Module):
    """A model of these layers."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = list(layers)


class KV:
    """A kind of cache."""


class Ring:
    """Another kind of cache."""


def kinds(*layers, caches=()):
    """The kinds of things in a model of these layers."""
    return outline(Model(*layers), module="m", caches=caches).kinds


def test_sizes_make_no_kind():
    assert kinds(Layer(width=8)) == kinds(Layer(width=4), Layer(width=4))


@pytest.mark.parametrize("odd", [{"slides": True}, {"gate": True}])
def test_flags_and_parameters_make_a_kind(odd):
    one, both = kinds(Layer(), Layer()), kinds(Layer(), Layer(**odd))
    assert len(one["layers"]) == 1
    assert len(both["layers"]) == 2
    assert one["layers"] < both["layers"]


def test_lists_within_layers_have_places_of_their_own():
    layer = Layer()
    layer.experts = [nn.Linear(2, 2), nn.Linear(2, 2, bias=False)]
    assert len(kinds(layer)["layers.*.experts"]) == 2


def test_caches_before_the_last_are_distinguished():
    found = kinds(Layer(), Layer(), caches=[KV(), Ring()])
    assert found["caches"] == {"KV", "Ring"}
    assert found["caches before the last"] == {"KV"}


def test_parameters_are_counted():
    found = outline(Model(Layer(width=3)), module="m", caches=())
    assert found.parameters == {"layers.0.proj.weight": 9, "layers.0.proj.bias": 3}


def test_no_weight_is_computed():
    """A weight of 2 TB would not fit."""
    wide = 700_000
    assert kinds(Layer(width=wide))["layers"] == kinds(Layer())["layers"]
