"""One pass over rows of any lengths gives each what a pass of its own would give."""

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache

from conformance.reference.caches import layout
from conformance.reference.forward import Feed, forward, single_row
from conformance.reference.forward import _groups as groups

PROMPTS = ((3, 1, 4, 1, 5, 9), (2, 6), (5,), (3, 5, 8, 9, 7, 9, 3))
MASK = layout.mask
NEXT = ((7, 7, 7), (1,), (8, 2), (6,))


def feeds(model, prompts=PROMPTS):
    return [Feed(make_prompt_cache(model), prompt) for prompt in prompts]


def go_on(before):
    return [Feed(feed.caches, new) for feed, new in zip(before, NEXT, strict=True)]


def worst(got, want):
    return max(float(mx.abs(g - w).max()) for g, w in zip(got, want, strict=True))


def test_rows_together_are_what_they_are_in_single_streams(model):
    batch, singles = feeds(model), feeds(model)
    assert worst(forward(model, batch), [single_row(model, feed) for feed in singles]) < 1e-4
    got = forward(model, go_on(batch))
    want = [single_row(model, feed) for feed in go_on(singles)]
    assert worst(got, want) < 1e-4
    assert [row.shape[0] for row in got] == [len(new) for new in NEXT]


def test_rows_of_any_length_are_one_call(tiny):
    model = tiny("keys", "window", "state")
    forward(model, feeds(model))
    assert model.calls == [(4, 7)]


def test_rows_that_must_be_even_go_in_as_few_calls_as_there_are_histories(tiny):
    model = tiny("chunked")
    forward(model, feeds(model, ((1, 2, 3), (4, 5), (6, 7, 8))))
    assert model.calls == [(2, 3), (1, 2)]


def blind(rows, length, window):
    return mx.ones((len(rows), 1, length, layout.width(rows)), mx.bool_)


def of_first_row(rows, length, window):
    return MASK([layout.Row(rows[0].kept, length)] * len(rows), length, window)[
        ..., : layout.width(rows)
    ]


@pytest.mark.parametrize("wrong", [blind, of_first_row])
def test_a_wrong_mask_shows(tiny, monkeypatch, wrong):
    model = tiny("keys")
    batch, singles = feeds(model), feeds(model)
    forward(model, batch)
    for feed in singles:
        single_row(model, feed)
    monkeypatch.setattr(layout, "mask", wrong)
    want = [single_row(model, feed) for feed in go_on(singles)]
    assert worst(forward(model, go_on(batch)), want) > 1e-2


def test_a_wrong_length_of_a_state_shows(tiny, monkeypatch):
    model = tiny("state")
    batch, singles = feeds(model), feeds(model)
    monkeypatch.setattr("mlx_lm.models.cache.ArraysCache.make_mask", lambda self, n: None)
    forward(model, batch)
    for feed in singles:
        single_row(model, feed)
    states = [np.array(feed.caches[0][0]) for feed in batch]
    want = [np.array(feed.caches[0][0]) for feed in singles]
    assert np.allclose(states[3], want[3])
    assert not np.allclose(states[1], want[1])


def test_states_of_other_widths_go_in_calls_of_their_own(tiny):
    model = tiny("state")
    rows = feeds(model, ((1,), (2,), (3,)))
    forward(model, rows[:1])
    wide = mx.concatenate([rows[0].caches[0][0]] * 2, axis=-1)
    rows[1].caches[0][0] = wide
    assert groups(rows) == [[0, 2], [1]]


def test_rows_that_must_not_be_padded_go_with_those_of_as_many_tokens(tiny):
    model = tiny("keys", "window", "state")
    prompts = ((1, 2), (4,), (6, 7))
    batch = [Feed(make_prompt_cache(model), prompt, pads=False) for prompt in prompts]
    got = forward(model, batch)
    assert model.calls == [(2, 2), (1, 1)]
    assert worst(got, [single_row(model, feed) for feed in feeds(model, prompts)]) < 1e-4
