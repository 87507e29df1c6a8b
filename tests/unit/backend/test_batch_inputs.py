"""One input of a batch is wrong for all rows but one, and as it was afterwards."""

import mlx.core as mx
import mlx.nn as nn
import pytest

from conformance.backend.batch_inputs import INPUTS, Seen, altered


class Cache:
    """What a batch cache gives to a model."""

    def __init__(self, rows=2):
        self.offset = mx.arange(rows) + 3
        self.lengths = mx.array([5, 2][:rows])

    def make_mask(self, length, return_array=False):
        return mx.array([[True, True], [False, True]])[: self.offset.size]

    def advance(self, count):
        self.offset = self.offset + count
        self.lengths = self.lengths - count


class Reads(nn.Module):
    """Gives what it reads of its cache."""

    def __call__(self, inputs, cache=None):
        (entry,) = cache
        found = (entry.make_mask(1).tolist(), entry.lengths.tolist(), entry.offset.tolist())
        entry.advance(1)
        return found


RIGHT = ([[True, True], [False, True]], [5, 2], [3, 4])


def called(name, rows=2, length=1):
    """What the model reads in one call, what was counted, and its cache afterwards."""
    model, cache, seen = Reads(), Cache(rows), Seen()
    with altered(model, name, seen):
        found = model(mx.zeros((rows, length)), cache=[cache])
    assert type(model) is Reads
    assert type(cache) is Cache
    return found, seen, cache


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("mask", ([[True, True], [True, True]], RIGHT[1], RIGHT[2])),
        ("lengths", (RIGHT[0], [5, 5], RIGHT[2])),
        ("cache position", (RIGHT[0], RIGHT[1], [3, 5])),
    ],
)
def test_only_that_input_is_changed_and_the_cache_keeps_the_true_one(name, wrong):
    found, seen, cache = called(name)
    assert found == wrong
    assert seen == Seen(calls=1, given=1, changed=1)
    assert (cache.offset.tolist(), cache.lengths.tolist()) == ([4, 5], [4, 1])


@pytest.mark.parametrize("name", INPUTS)
def test_one_row_is_left_as_it_is(name):
    found, seen, _ = called(name, rows=1)
    assert found == ([[True, True]], [5], [3])
    assert seen == Seen()


def test_positions_are_changed_at_one_token_a_step_only():
    """A shift of all of a row's positions would be invisible: rotary positions are relative."""
    found, seen, _ = called("cache position", length=4)
    assert found == RIGHT
    assert seen == Seen(calls=1, given=1, changed=0)


def test_what_no_cache_has_is_not_given():
    model, seen = Reads(), Seen()
    cache = Cache()
    del cache.lengths
    with altered(model, "lengths", seen), pytest.raises(AttributeError):
        model(mx.zeros((2, 1)), cache=[cache])
    assert seen == Seen(calls=1)
