"""What is recorded of a model's modules and caches."""

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from conformance.backend.module_hooks import aside, record_calls


class Layer(nn.Module):
    """Multiplies, and keeps what it saw."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2, bias=False)

    def __call__(self, x, cache):
        cache.keys = x[:, None]
        return self.inner(x) + 1


class Model(nn.Module):
    """Embeds and calls the same layer twice."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(8, 2)
        self.layers = [Layer()]

    def __call__(self, tokens, cache=None):
        x = self.embed(tokens)
        x *= 2
        for _ in range(2):
            x = self.layers[0](x, cache[0])
        return x


class Cache:
    """Keys alone, with an offset for each row."""

    def __init__(self):
        self.keys = None
        self.offset = mx.array([0, 1])
        self.left_padding = mx.array([1, 0])


@pytest.fixture
def model():
    return Model()


def test_each_pass_has_its_tokens_and_its_modules_in_the_order_in_which_they_ended(model):
    with record_calls(model) as passes:
        out = model(mx.array([[1, 2, 3]]), cache=[Cache()])
    (one,) = passes
    assert one.tokens.tolist() == [[1, 2, 3]]
    assert [(h.path, h.turn) for h in one.calls] == [
        ("embed", 0),
        ("layers.0.inner", 0),
        ("layers.0", 0),
        ("layers.0.inner", 1),
        ("layers.0", 1),
        ("", 0),
    ]
    np.testing.assert_array_equal(one.calls[-1].made, np.array(out))
    np.testing.assert_array_equal(one.calls[0].made, np.array(model.embed.weight)[[[1, 2, 3]]])
    np.testing.assert_array_equal(one.calls[1].given, 2 * one.calls[0].made)
    assert one.calls[0].given is None  # token ids are no numbers to compare


def test_caches_are_read_before_the_pass(model):
    cache = Cache()
    with record_calls(model) as passes:
        model(mx.array([[1, 2], [3, 4]]), cache=[cache])
        cache.offset = cache.offset + 2
        model(mx.array([[5], [6]]), cache=[cache])
    first, second = (one.caches[0] for one in passes)
    assert (first.place, first.kind, first.arrays) == ("0", "Cache", {})
    assert second.counts["offset"].tolist() == [2, 3]
    assert second.arrays["keys"].shape == (2, 1, 2, 2)


def test_what_happens_later_changes_nothing_that_was_recorded(model):
    cache = Cache()
    with record_calls(model) as passes:
        model(mx.array([[1]]), cache=[cache])
        model(mx.array([[1]]), cache=[cache])
        before = passes[1].caches[0].arrays["keys"].copy()
        cache.keys[:] = 7.0
    np.testing.assert_array_equal(passes[1].caches[0].arrays["keys"], before)


def test_afterwards_the_classes_are_what_they_were(model):
    was = [type(module) for _, module in model.named_modules()]
    with pytest.raises(ZeroDivisionError), record_calls(model):
        raise ZeroDivisionError
    assert [type(module) for _, module in model.named_modules()] == was


def test_of_what_is_no_tree_of_modules_nothing_is_recorded():
    with record_calls(object()) as passes:
        pass
    assert passes == []


class Output:
    """What models of one library return."""

    def __init__(self, logits):
        self.logits = logits


class Wrapped(Model):
    """Gives its logits within an object."""

    def __call__(self, tokens, cache=None):
        return Output(super().__call__(tokens, cache=cache))


def test_logits_within_an_object_are_recorded():
    with record_calls(Wrapped()) as passes:
        (model := Wrapped())(mx.array([[1]]), cache=[Cache()])
    assert passes == []  # of another model nothing is recorded
    with record_calls(model) as passes:
        out = model(mx.array([[1]]), cache=[Cache()])
    np.testing.assert_array_equal(passes[0].calls[-1].made, np.array(out.logits))


class Verifying(Model):
    """Has a part that takes all caches and is called without the rest."""

    def __init__(self):
        super().__init__()
        self.part = Model()

    def __call__(self, tokens, cache=None):
        return self.part(tokens, cache=cache)


def test_a_part_that_is_called_with_the_caches_makes_a_pass():
    model = Verifying()
    with record_calls(model) as passes:
        model(mx.array([[1, 2]]), cache=[Cache()])
        model.part(mx.array([[3]]), cache=[Cache()])
        model.part.embed(mx.array([[4]]))
    assert [one.tokens.tolist() for one in passes] == [[[1, 2]], [[3]]]
    assert [one.calls[-1].path for one in passes] == ["", "part"]


def test_after_a_pass_that_raises_the_next_one_is_recorded():
    model = Verifying()
    with record_calls(model) as passes:
        with pytest.raises(TypeError):
            model(mx.array([[1]]), cache=None)
        model(mx.array([[2]]), cache=[Cache()])
    assert [one.tokens.tolist() for one in passes] == [[[2]]]


def test_passes_that_belong_to_no_row_are_reported(model):
    with record_calls(model) as passes:
        with aside():
            model(mx.array([[1]]), cache=[Cache()])
        model(mx.array([[2]]), cache=[Cache()])
    assert [one.aside for one in passes] == [True, False]


def test_what_a_model_is_given_in_place_of_tokens_is_recorded_first():
    class Embedding(nn.Module):
        def __call__(self, tokens, mask=None, inputs_embeds=None, cache=None):
            return inputs_embeds

    model, shown = Embedding(), mx.ones((1, 2, 3))
    with record_calls(model) as passes:
        model(mx.array([[1, 2]]), mx.zeros((2, 2)), inputs_embeds=shown, cache=[Cache()])
    assert passes[0].calls[-1].given.shape == (1, 2, 3)
