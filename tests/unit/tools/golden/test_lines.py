"""What is kept of a single stream."""

import numpy as np
import pytest

from conformance.core.errors import GoldenError
from conformance.core.schedule import Request
from conformance.tools.golden.lines import TOP, record

REQUEST = Request("short", (1, 2), 2)


def rows(vocab=12, seed=0):
    scores = np.random.default_rng(seed).normal(size=(2, vocab)) * 3
    return (scores - np.log(np.exp(scores).sum(-1, keepdims=True))).astype(np.float32)


def test_the_most_likely_tokens_are_kept_the_best_first():
    table = rows()
    kept = record(REQUEST, (1, 2), table, np.full(2, 1e-6))
    for step, row in enumerate(table):
        assert [token for token, _ in kept.top[step]] == list(np.argsort(-row)[:TOP])


def test_rounding_stays_far_below_the_smallest_noise():
    table = rows() * 4
    kept = record(REQUEST, (1, 2), table, np.full(2, 1e-6))
    off = [
        abs(v - float(row[t])) for row, step in zip(table, kept.top, strict=True) for t, v in step
    ]
    assert max(off) <= 5.01e-8 < 2 * 2.0**-23 / 4


def test_margins_and_noise_have_three_digits():
    kept = record(REQUEST, (1, 2), rows(), np.array([1.23456e-6, 9.87654e-5]))
    assert kept.noise == (1.23e-6, 9.88e-5)
    ordered = np.sort(rows(), axis=-1)
    assert kept.margins == pytest.approx(ordered[:, -1] - ordered[:, -2], rel=5e-3)


def test_a_small_vocabulary_is_kept_whole():
    assert len(record(REQUEST, (1, 2), rows(vocab=3), np.full(2, 1e-6)).top[0]) == 3


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_what_is_not_finite_is_refused_with_its_step(bad):
    table = rows(vocab=4)
    table[1, 0] = bad
    with pytest.raises(GoldenError, match="request 'short': logprobs at step 1 are not finite"):
        record(REQUEST, (1, 2), table, np.full(2, 1e-6))


def test_a_masked_token_beyond_the_kept_ones_is_no_harm():
    table = rows()
    table[1, table[1].argmin()] = -np.inf
    assert len(record(REQUEST, (1, 2), table, np.full(2, 1e-6)).top[1]) == TOP
