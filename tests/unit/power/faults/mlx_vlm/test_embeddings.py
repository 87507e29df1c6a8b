"""Embeddings that are exchanged count where the model has another output for them."""

from types import SimpleNamespace

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_vlm.models.cache import KVCache

from conformance.power.faults.mlx_vlm.embeddings import changes_output

WIDTH, PADDING = 4, (0, 2)


class Reader(nn.Module):
    """Sums up what it is given; notes on itself how often it was called."""

    def __init__(self, *, reads, cuts):
        super().__init__()
        self.layers, self.reads, self.cuts, self.calls = [], reads, cuts, 0

    def make_cache(self):
        return [KVCache()]

    def __call__(self, ids, cache=None, inputs_embeds=None):
        self.calls += 1
        given = inputs_embeds if self.reads else mx.zeros((*ids.shape, WIDTH))
        cut = PADDING if self.cuts else (0, 0)
        return mx.stack([row[at:].sum(0) for row, at in zip(given, cut, strict=True)])[:, None]


def batch(**kind):
    return SimpleNamespace(
        model=Reader(**kind),
        _left_padding_per_row=PADDING,
        _prompt_kwargs={},
        _input_ids=mx.zeros((2, 5), mx.int32),
        _inputs_embeds=mx.ones((2, 5, WIDTH)),
    )


def spoiled(row, column):
    other = mx.ones((2, 5, WIDTH))
    other[row, column] = mx.nan
    return other


@pytest.mark.parametrize(
    ("reads", "cuts", "place", "changes"),
    [
        (True, False, (1, 0), True),
        (True, True, (1, 0), False),
        (True, True, (1, 2), True),
        (False, False, (1, 2), False),
    ],
)
def test_what_a_model_does_not_read_changes_nothing(reads, cuts, place, changes):
    assert changes_output(batch(reads=reads, cuts=cuts), spoiled(*place)) is changes


def test_a_model_has_forgotten_that_it_was_called():
    called = batch(reads=True, cuts=False)
    changes_output(called, spoiled(0, 0))
    assert called.model.calls == 0


def test_a_model_that_raises_counts_as_changed():
    called = batch(reads=False, cuts=False)
    called._prompt_kwargs = {"unknown": 1}
    assert changes_output(called, spoiled(0, 0))
