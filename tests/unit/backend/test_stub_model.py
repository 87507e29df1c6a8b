"""The model of a few lines: with caches it gives what its definition gives without any."""

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models import base, cache

from conformance.backend.stub_model import (
    EMBEDDINGS,
    VOCAB,
    StubModel,
    logits_alone,
    logprobs_of,
)

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]


def made(windows):
    def make_cache():
        return [cache.RotatingKVCache(max_size=w) if w else cache.KVCache() for w in windows]

    return StubModel(base, make_cache, windows)


@pytest.mark.parametrize("windows", [(None,), (4,), (None, 3)])
@pytest.mark.parametrize("piece", [1, 3, 8])
def test_pieces_of_a_prompt_give_what_the_definition_gives(windows, piece):
    model = made(windows)
    caches = model.make_cache()
    for start in range(0, len(TOKENS), piece):
        logits = model(mx.array([TOKENS[start : start + piece]]), cache=caches).logits
    want = logits_alone(EMBEDDINGS[TOKENS], np.arange(len(TOKENS)), windows)
    assert np.abs(np.array(logits[0, -1]) - want).max() < 1e-3


def test_positions_and_each_token_decide():
    at = np.arange(len(TOKENS))
    right = logits_alone(EMBEDDINGS[TOKENS], at)
    moved = logits_alone(EMBEDDINGS[TOKENS], at + 1)
    assert np.abs(right - moved).max() > 0.01
    for number in range(len(TOKENS)):
        other = [*TOKENS[:number], 20, *TOKENS[number + 1 :]]
        assert np.abs(right - logits_alone(EMBEDDINGS[other], at)).max() > 0.01


def test_it_keeps_what_it_was_given():
    model = made((None,))
    model(mx.array([TOKENS]), cache=model.make_cache(), more=1)
    assert [(call.tokens, call.options) for call in model.calls] == [([TOKENS], {"more": 1})]


def test_logprobs_are_those_of_a_softmax():
    assert np.exp(logprobs_of(np.arange(VOCAB) * 100.0)).sum() == pytest.approx(1.0)
