"""From plain descriptions to the library's callables."""

import math

import mlx.core as mx
import pytest
from mlx_lm import sample_utils

from conformance.backend.sampling import ForcedSampler, SeededSampler
from conformance.core.errors import ScheduleError, Unsupported
from conformance.core.grammar import Grammar
from conformance.core.token_choice import Processor, Sampler
from conformance.plugins.mlx_lm.sampling import make_processors, make_sampler

FLAT = mx.zeros((1, 64))


def test_a_processor_that_an_old_release_lacks_is_refused_by_name(monkeypatch):
    def of_old(logit_bias=None, repetition_penalty=None):
        return []

    monkeypatch.setattr(sample_utils, "make_logits_processors", of_old)
    with pytest.raises(Unsupported, match="of_old does not support frequency_penalty"):
        make_processors((Processor("library", {"frequency_penalty": 1.0}),))


def test_forced_tokens_come_one_a_call_for_every_row_and_the_last_again():
    sampler = ForcedSampler((7, 8))
    assert [sampler(mx.zeros((2, 16))).tolist() for _ in range(4)] == [
        [7, 7],
        [8, 8],
        [8, 8],
        [8, 8],
    ]
    assert sampler(FLAT).dtype == mx.uint32


def draws(sampler, count=12):
    return [sampler(FLAT).item() for _ in range(count)]


def test_a_seed_gives_the_same_draws_and_each_call_another():
    one, two = (SeededSampler(1.0, 5) for _ in range(2))
    drawn = draws(one)
    assert drawn == draws(two)
    assert len(set(drawn)) > 6
    assert draws(SeededSampler(1.0, 6)) != drawn


def test_a_seeded_row_does_not_hang_on_the_global_random_state():
    mx.random.seed(1)
    drawn = draws(SeededSampler(1.0, 5))
    mx.random.seed(2)
    assert draws(SeededSampler(1.0, 5)) == drawn


def test_a_low_temperature_is_greedy():
    logprobs = mx.array([[-3.0, -0.1, -4.0]])
    sampler = SeededSampler(0.01, 1)
    assert {sampler(logprobs).item() for _ in range(20)} == {1}


def test_no_sampler_is_none():
    assert make_sampler(None) is None


def test_kinds_of_samplers():
    assert isinstance(
        make_sampler(Sampler("seeded", {"temperature": 0.5, "seed": 1})), SeededSampler
    )
    top_one = make_sampler(Sampler("library", {"temp": 0.7, "top_k": 1}))
    assert top_one(mx.array([[-3.0, -0.1, -4.0]])).item() == 1


def test_a_stateful_sampler_is_made_anew():
    description = Sampler("seeded", {"temperature": 1.0, "seed": 1})
    assert draws(make_sampler(description)) == draws(make_sampler(description))


def test_an_unknown_sampler_is_reported_with_the_known_ones():
    with pytest.raises(ScheduleError) as raised:
        make_sampler(Sampler("beam"))
    assert (
        str(raised.value)
        == "mlx_lm: no sampler of kind 'beam'; there are seeded, library, compared, rank, random"
    )


def test_processors_are_made_by_the_library_with_integer_tokens():
    (bias,) = make_processors((Processor("library", {"logit_bias": {"2": 5.0}}),))
    assert bias(mx.array([1]), mx.zeros((1, 4))).tolist() == [[0.0, 0.0, 5.0, 0.0]]


def test_several_processors_stay_in_order():
    made = make_processors(
        (
            Processor("library", {"logit_bias": {"2": 5.0}}),
            Processor("library", {"repetition_penalty": 2.0, "repetition_context_size": 4}),
        )
    )
    assert len(made) == 2
    assert made[1](mx.array([2]), mx.full((1, 4), 4.0)).tolist() == [[4.0, 4.0, 2.0, 4.0]]
    assert make_processors(()) == []


def test_an_unknown_processor_is_reported():
    with pytest.raises(ScheduleError) as raised:
        make_processors((Processor("oracle"),))
    assert (
        str(raised.value)
        == "mlx_lm: no processor of kind 'oracle'; there are grammar, close, library"
    )


def test_a_grammar_moves_on_by_what_came_out_and_forbids_by_minus_infinity():
    (processor,) = make_processors((Processor("grammar", {"seed": 1, "states": 11}),))
    single = Grammar(1, 11)
    for tokens in ([3, 4], [3, 4, 7], [3, 4, 7, 1]):
        single.advance(tokens)
        logits = processor(mx.array(tokens), mx.zeros((1, 8), mx.bfloat16))
        assert logits.dtype == mx.bfloat16
        allowed = single.allowed(8)
        assert logits.tolist() == [[0.0 if may else -math.inf for may in allowed]]


def test_each_request_has_a_grammar_of_its_own():
    wanted = (Processor("grammar", {"seed": 1, "states": 11}),)
    (one,), (other,) = make_processors(wanted), make_processors(wanted)
    assert one.grammar is not other.grammar


def test_a_rank_counts_from_the_likeliest_in_each_row():
    rows = mx.array([[0.1, 0.7, 0.2], [0.6, 0.1, 0.3]])
    assert [make_sampler(Sampler("rank", {"rank": r}))(rows).tolist() for r in range(3)] == [
        [1, 0],
        [2, 2],
        [0, 1],
    ]


def test_close_tokens_are_apart_in_float32_alone():
    logits = mx.array([[0.5, -1.0, 3.25, 3.0, 2.0]])
    (close,) = make_processors((Processor("close"),))
    near = close(mx.array([0]), logits)
    assert near[0, 3].item() > near[0, 2].item() > 2.99
    assert near[0, 1::2].tolist() == [-1.0, 3.0]
    assert near[0, 4].item() == 2.0
    half = near.astype(mx.float16)
    assert half[0, 2].item() == half[0, 3].item()
