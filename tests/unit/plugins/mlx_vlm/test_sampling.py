"""What mlx-vlm's generator is given to sample and to stop with."""

import mlx.core as mx
import pytest

from conformance.core.errors import ScheduleError
from conformance.core.token_choice import BY_POSITION, Sampler
from conformance.plugins.mlx_vlm.sampling import (
    alternatives,
    end_at,
    make_sampler,
    stopping_criteria,
)


@pytest.mark.parametrize(("stop_tokens", "ends"), [((), False), ((7,), True), ((1, 7), True)])
def test_rows_end_with_the_stop_tokens_alone(stop_tokens, ends):
    criteria = stopping_criteria()
    end_at(criteria, stop_tokens)
    assert criteria(7) is ends
    assert not criteria(3)
    end_at(criteria, (4,))
    assert [token for token in range(9) if criteria(token)] == [4]


@pytest.mark.parametrize(
    ("pairs", "holds"), [([(3, -0.5), (1, -2.0)], True), ([(1, -2.0), (3, -0.5)], False)]
)
def test_alternatives_begin_with_the_likeliest(pairs, holds):
    assert alternatives(pairs).holds is holds


def test_a_rank_is_taken_of_one_token_for_each_row_and_of_drafts():
    second = make_sampler(Sampler("rank", {"rank": 1}))
    logprobs = mx.array([[0.1, 0.7, 0.2], [0.5, 0.1, 0.4]])
    assert second(logprobs).tolist() == [2, 2]
    assert second(mx.stack([logprobs, -logprobs])).tolist() == [[2, 2], [2, 2]]


def test_by_position_each_row_has_the_rank_of_its_own_position():
    logprobs = mx.array([[0.1, 0.7, 0.2]] * 3)
    sampler = make_sampler(Sampler(BY_POSITION, {"ranks": 2}))
    assert sampler.sample_target(logprobs, row_ids=[0, 0, 1], positions=[0, 1, 4]).tolist() == [
        *(1, 2, 1)
    ]
    assert [sampler(logprobs[:1]).item() for _ in range(3)] == [1, 2, 1]


def test_another_kind_is_refused():
    with pytest.raises(ScheduleError, match="no sampler of kind 'other'; there are library, rank"):
        make_sampler(Sampler("other"))
