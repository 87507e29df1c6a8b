"""What filters may leave of a row: by hand, and against the library's own filters."""

import numpy as np
import pytest

from conformance.checks.sampled import drawable
from conformance.core.token_choice import Sampler

# 0.4, 0.3, 0.15, 0.1, 0.05
PROBS = np.array([0.1, 0.4, 0.05, 0.3, 0.15])
NOISE = 1e-6


def left(noise=NOISE, probs=PROBS, **args):
    sampler = Sampler("library", {"temp": 0.7, **args})
    return set(np.flatnonzero(drawable(sampler, np.log(probs), noise)).tolist())


def test_without_filters_every_token_may_be_drawn():
    assert left() == {0, 1, 2, 3, 4}


def test_without_a_temperature_the_best_one_alone():
    assert left(temp=0.0) == {1}
    assert left(temp=0.0, noise=0.2) == {1, 3}


@pytest.mark.parametrize(("share", "tokens"), [(0.01, {1}), (0.5, {1, 3}), (0.8, {1, 3, 4})])
def test_a_nucleus(share, tokens):
    assert left(top_p=share) == tokens


def test_at_the_edge_of_a_nucleus_there_may_be_one_more():
    assert left(top_p=0.4) == {1, 3}
    assert left(top_p=0.399) == {1}
    assert left(top_p=0.399, noise=0.01) == {1, 3}


def test_the_least_likely_that_min_p_leaves():
    assert left(min_p=0.3) == {1, 3, 4}


@pytest.mark.parametrize(("count", "tokens"), [(1, {1}), (2, {1, 3}), (4, {0, 1, 3, 4})])
def test_the_best(count, tokens):
    assert left(top_k=count) == tokens


def test_of_tokens_as_near_as_the_noise_either_may_be_the_best():
    assert left(top_k=1, noise=0.2) == {1, 3}


def test_xtc_leaves_the_least_of_the_likely_and_all_unlikely():
    assert left(xtc_probability=1.0, xtc_threshold=0.12) == {0, 2, 4}
    assert left(xtc_probability=1.0, xtc_threshold=0.12, top_k=1) == {4}
    assert left(xtc_probability=1.0, xtc_threshold=0.45, top_k=1) == {1}


def test_xtc_by_chance_forbids_nothing():
    assert left(xtc_probability=0.5, xtc_threshold=0.12) == {0, 1, 2, 3, 4}


def test_at_the_threshold_of_xtc_none_is_sure_to_stay():
    assert left(xtc_probability=1.0, xtc_threshold=0.15) == {0, 2, 3, 4}
    assert left(xtc_probability=1.0, xtc_threshold=0.15, top_k=1) == {0, 3, 4}


def test_filters_follow_one_another():
    assert left(top_p=0.8, min_p=0.5, top_k=3) == {1, 3}


@pytest.mark.parametrize("sampler", [Sampler("stateful", {}), Sampler("library", {"mu": 1})])
def test_what_is_not_known_forbids_nothing(sampler):
    assert drawable(sampler, np.log(PROBS), NOISE).all()


def test_the_librarys_filters_leave_what_may_be_left():
    sample_utils = pytest.importorskip("mlx_lm.sample_utils")
    import mlx.core as mx  # noqa: PLC0415

    for seed in range(20):
        logits = np.random.default_rng(seed).normal(scale=2.0, size=60)
        row = (logits - np.log(np.exp(logits).sum())).astype(np.float32)
        args = {"top_p": 0.9, "min_p": 0.05, "top_k": 7}
        got = sample_utils.apply_top_p(mx.array(row)[None], 0.9)
        got = sample_utils.apply_top_k(sample_utils.apply_min_p(got, 0.05), 7)
        assert left(probs=np.exp(row.astype(np.float64)), **args) == kept(got)
        got = sample_utils.apply_xtc(mx.array(row)[None], 1.0, 0.1, [])
        args = {"xtc_probability": 1.0, "xtc_threshold": 0.1}
        assert left(probs=np.exp(row.astype(np.float64)), **args) == kept(got)


def kept(logprobs):
    return set(np.flatnonzero(np.isfinite(np.array(logprobs)[0])).tolist())


def test_a_rank_leaves_one_token_and_those_as_likely():
    def at(rank, noise=NOISE):
        sampler = Sampler("rank", {"rank": rank})
        return set(np.flatnonzero(drawable(sampler, np.log(PROBS), noise)).tolist())

    assert [at(rank) for rank in range(3)] == [{1}, {3}, {4}]
    assert at(1, noise=0.2) == {1, 3}


def test_a_seed_leaves_the_token_that_it_draws_and_those_as_near():
    sampler = Sampler("seeded", {"temperature": 0.5, "seed": 3})
    logprobs = np.log(PROBS).astype(np.float32)
    backend = pytest.importorskip("conformance.backend.sampling")
    drawing = backend.SeededSampler(0.5, 3)
    mx = pytest.importorskip("mlx.core")
    drawn = [drawing(mx.array(logprobs)[None]).item() for _ in range(30)]
    assert len(set(drawn)) > 1
    for step, token in enumerate(drawn):
        assert np.flatnonzero(drawable(sampler, logprobs, 1e-6, step)).tolist() == [token]
    assert drawable(sampler, logprobs, 50.0, 0).all()
