"""A metered model is the same model, and its calls are on the list."""

import inspect

import mlx.core as mx
import pytest
from mlx import nn

from conformance.backend.metering import attach_meter


class Model(nn.Module):
    """Adds one; has what libraries look for on a model."""

    def __init__(self):
        super().__init__()
        self.weight = mx.ones(4)
        self.layers = [nn.Linear(2, 2)]

    def __call__(self, inputs, cache=None, *, scale=1):
        return inputs * scale + 1

    @property
    def kind(self):
        return "tiny"


class Cache:
    """An entry whose state can be evaluated."""

    state = mx.zeros(2)

    def __init__(self, *, empty=False):
        self._empty = empty

    def empty(self):
        return self._empty


def test_calls_are_recorded_with_their_shape():
    model = Model()
    calls = attach_meter(model)
    model(mx.zeros((3, 7)))
    model(mx.zeros((2, 1)))
    assert [(call.batch, call.length) for call in calls] == [(3, 7), (2, 1)]
    assert all(call.seconds > 0 for call in calls)


def test_arguments_and_results_pass_through():
    model = Model()
    attach_meter(model)
    assert model(mx.zeros((1, 2)), cache=[None], scale=3).tolist() == [[1, 1]]


def test_the_model_is_what_it_was():
    model = Model()
    parameters = model.parameters()
    attach_meter(model)
    assert isinstance(model, Model)
    assert type(model).__name__ == "Model"
    assert type(model).__doc__ == Model.__doc__
    assert type(model).__module__ == Model.__module__
    assert inspect.signature(type(model).__call__) == inspect.signature(Model.__call__)
    assert model.kind == "tiny"
    assert model.parameters() == parameters
    assert len(model.layers) == 1


def test_only_this_model_is_metered():
    metered, other = Model(), Model()
    calls = attach_meter(metered)
    other(mx.zeros((1, 1)))
    assert calls == []
    assert type(other) is Model


def test_a_call_that_raises_is_not_recorded():
    model = Model()
    calls = attach_meter(model)
    with pytest.raises(TypeError):
        model(mx.zeros((1, 1)), nonsense=1)
    assert calls == []


def test_two_meters_both_count():
    model = Model()
    one, two = attach_meter(model), attach_meter(model)
    model(mx.zeros((2, 5)))
    assert [(c.batch, c.length) for c in one] == [(c.batch, c.length) for c in two] == [(2, 5)]


@pytest.mark.parametrize("evaluate", [True, False])
def test_the_output_and_live_caches_are_evaluated_inside_only_on_request(monkeypatch, evaluate):
    evaluated = []
    monkeypatch.setattr(mx, "eval", lambda *arrays: evaluated.append(arrays))
    model = Model()
    attach_meter(model, evaluate=evaluate)
    model(mx.zeros((1, 2)), cache=[Cache(), Cache(empty=True)])
    assert len(evaluated) == int(evaluate)
    if evaluate:
        assert len(evaluated[0][1]) == 1  # the empty cache has no state yet


def test_arguments_are_handed_on_by_the_names_that_they_came_by():
    class Other(Model):
        def __call__(self, x, cache=None):
            return x

    model = Other()
    calls = attach_meter(model)
    with pytest.raises(TypeError, match="inputs"):
        model(inputs=mx.zeros((1, 3)))
    model(x=mx.zeros((2, 3)), cache=None)
    model(cache=None, x=mx.zeros((1, 5)))
    assert [(call.batch, call.length) for call in calls] == [(2, 3), (1, 5)]
