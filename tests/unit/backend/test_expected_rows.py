"""The answer of a row by its definition: stops, lengths, ranks, processors, forced tokens."""

import mlx.core as mx
import numpy as np
import pytest

from conformance.backend.expected_rows import Asked, Biased, ByLastToken, Forcing, Ranked, answer
from conformance.backend.stub_model import VOCAB


def tokens(asked, stops=frozenset(), **options):
    return [one.token for one in answer(asked, set(stops), **options)]


def test_it_ends_by_its_length_or_by_what_ends_it():
    plain = list(answer(Asked([1, 2, 3], 6), set()))
    assert [one.reason for one in plain] == [*[None] * 5, "length"]
    pair = tuple(one.token for one in plain[1:3])
    stopped = list(answer(Asked([1, 2, 3], 6), {pair}))
    assert [one.reason for one in stopped] == [None, None, "stop"]
    last = tuple(one.token for one in plain[4:])
    assert list(answer(Asked([1, 2, 3], 6), {last}))[-1].reason == "stop"


def test_a_rank_a_processor_and_a_budget_change_it():
    plain = tokens(Asked([1, 2, 3], 5))
    assert tokens(Asked([1, 2, 3], 5), rank=Ranked.rank) != plain
    assert tokens(Asked([1, 2, 3], 5, processors=[Biased(3)])) != plain
    forced = tokens(Asked([1, 2, 3], 5, budget=(2, 7)))
    assert forced[:2] == plain[:2]
    assert forced[2] == 7


def test_the_best_are_those_of_the_logprobs():
    first = next(answer(Asked([4], 1), set(), top=3))
    assert first.top[0] == (first.token, first.logprob)
    assert np.exp(first.scores).sum() == pytest.approx(1.0, abs=1e-5)


def test_a_processor_by_its_last_token_adds_what_it_adds_by_all():
    one, by_last = Biased(2), ByLastToken(2)
    logits = mx.zeros((1, VOCAB))
    by_last(mx.array([5, 6]), logits)
    got = by_last.process_last_token(7, logits)
    assert mx.array_equal(got, one(mx.array([5, 6, 7]), logits))


def test_wrong_calls_are_refused():
    with pytest.raises(ValueError, match="logits of"):
        Biased(1)(mx.array([1]), mx.zeros((2, VOCAB)))
    with pytest.raises(TypeError, match="is given"):
        Forcing(1, 2)(mx.array(3))
    with pytest.raises(ValueError, match="without any"):
        Ranked()(mx.zeros((1, VOCAB)))
    with pytest.raises(ValueError, match="are asked for"):
        Ranked().sample_target(mx.zeros((2, VOCAB)), row_ids=[0, 0], positions=[1])
