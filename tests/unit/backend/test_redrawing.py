"""A library's sampler beside the same rules written a second time."""

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm import sample_utils
from mlx_vlm import sample_utils as vlm_sample_utils

from conformance.backend.redrawing import ComparedSampler, drawn_by_rules

FILTERS = (
    {},
    {"top_p": 0.6},
    {"min_p": 0.3},
    {"min_p": 1.0, "min_tokens_to_keep": 4},
    {"top_k": 3},
    {"xtc_probability": 0.5, "xtc_threshold": 0.05, "xtc_special_tokens": [1]},
    {"top_p": 0.9, "min_p": 0.05, "xtc_probability": 1.0, "top_k": 5},
)


def logprobs(rows=4, vocab=32):
    logits = mx.array(np.random.default_rng(1).normal(0, 2, (rows, vocab)).astype(np.float32))
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


def drawn(filters, library=None, calls=20, given=None):
    args = {"temp": 2.0} | filters
    compared = ComparedSampler(library or sample_utils.make_sampler(**args), args)
    given = logprobs() if given is None else given
    for _ in range(calls):
        chosen = compared(given)
    assert np.array_equal(np.array(chosen), np.array(mx.argmax(given, axis=-1)))
    return compared.drawn()


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_the_librarys_sampler_draws_what_the_rules_give(filters):
    found = drawn(filters)
    assert len(found) == 20
    assert all(mine == again for mine, again in found)
    assert len({token for mine, _ in found for token in mine}) > 1


def test_a_deviation_is_that_of_float32_whatever_the_dtype():
    found = drawn(
        {"top_n_sigma": 1.5},
        vlm_sample_utils.make_sampler(temp=2.0, top_n_sigma=1.5),
        given=logprobs(rows=64, vocab=256).astype(mx.bfloat16),
    )
    assert all(mine == again for mine, again in found)


@pytest.mark.parametrize(
    "other", [{"temp": 4.0}, {"top_p": 0.9}, {"min_p": 0.9}, {"top_k": 1}], ids=str
)
def test_another_filter_is_seen(other):
    args = {"temp": 2.0, "top_p": 0.6} | other
    found = drawn({"top_p": 0.6}, sample_utils.make_sampler(**args))
    assert any(mine != again for mine, again in found)


def test_another_temperature_for_some_numbers_of_rows_is_seen():
    right, cold = (sample_utils.make_sampler(temp=temp) for temp in (2.0, 2.0 / 1.03))
    found = drawn({}, lambda given: (cold if given.shape[0] % 16 else right)(given))
    assert any(mine != again for mine, again in found)


def test_what_was_drawn_is_given_once():
    args = {"temp": 1.0}
    compared = ComparedSampler(sample_utils.make_sampler(**args), args)
    compared(logprobs(rows=2))
    assert [len(mine) for mine, _ in compared.drawn()] == [2]
    assert compared.drawn() == []


def test_removed_tokens_are_never_drawn():
    given = logprobs()
    best = np.argsort(-np.array(given), axis=-1)[:, :3]
    for seed in range(50):
        mx.random.seed(seed)
        tokens = np.array(drawn_by_rules(given, {"temp": 9.0, "top_k": 3}))
        assert all(token in row for token, row in zip(tokens, best, strict=True))


def test_of_equal_tokens_in_half_precision_either_may_stay():
    """mlx-lm keeps as many as it is to; the rules keep all that are as likely as the last."""
    args = {"temp": 1.0, "min_p": 1.0, "min_tokens_to_keep": 2}
    compared = ComparedSampler(sample_utils.make_sampler(**args), args)
    for _ in range(20):
        compared(mx.log(mx.array([[0.4, 0.2, 0.2, 0.2]])).astype(mx.bfloat16))
    assert all(mine == again for mine, again in compared.drawn())
