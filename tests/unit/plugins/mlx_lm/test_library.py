"""mlx-lm as a library: three ways to the same numbers."""

import functools

import mlx.core as mx
import numpy as np
import pytest

from conformance.core.engine_options import EngineOptions
from conformance.core.errors import ModelError
from conformance.core.schedule import Request
from conformance.core.token_choice import Processor, Sampler
from conformance.plugins.mlx_lm.library import MlxLm

PROMPT = tuple(range(1, 12))
ASK = Request("a", PROMPT, 4)


@pytest.fixture(scope="module")
def library():
    return MlxLm()


@pytest.fixture(scope="module")
def solo(library, model):
    def decode(request=ASK, *, steps=4, size=2048, **more):
        options = EngineOptions(prefill_step_size=size)
        return library.single_stream(model, request, options=options, steps=steps, **more)

    return decode


def near(got, want):
    return np.abs(got - want).max() < 1e-4


def test_the_single_stream_has_logprobs_of_each_step(solo):
    stream = solo().stream
    assert len(stream.tokens) == 4
    assert stream.logprobs.dtype == np.float32
    assert np.allclose(np.exp(stream.logprobs).sum(axis=-1), 1, atol=1e-4)
    assert stream.tokens == tuple(stream.logprobs.argmax(axis=-1))


def test_single_stream_and_stateless_and_one_pass_agree(library, model, solo):
    stream = solo().stream
    assert near(
        library.teacher_forced(model, ASK, stream.tokens, options=EngineOptions()), stream.logprobs
    )
    for step in range(4):
        row = library.stateless(model, ASK, stream.tokens[:step])
        assert near(row, stream.logprobs[step])


@pytest.mark.parametrize("segments", [(11,), (3, 8), (1, 9, 1), (5, 5, 1)])
@pytest.mark.parametrize("size", [2048, 4])
def test_segments_give_the_plain_stream(solo, segments, size):
    got = solo(Request("a", PROMPT, 4, segments=segments), size=size).stream
    want = solo().stream
    assert got.tokens == want.tokens
    assert near(got.logprobs, want.logprobs)


def test_segments_are_fed_in_pieces_of_the_step_size(library, model, solo):
    calls = library.meter(model)
    solo(Request("a", PROMPT, 1, segments=(6, 5)), steps=1, size=4)
    assert [call.length for call in calls if call.length > 1] == [4, 2, 4]


def test_a_cache_goes_on_where_it_was_left(solo):
    first = solo()
    more = solo(Request("b", (3, 4), 2), steps=2, prefix=first.cache).stream
    whole = solo(Request("c", (*PROMPT, *first.stream.tokens, 3, 4), 2), steps=2).stream
    assert more.tokens == whole.tokens
    assert near(more.logprobs, whole.logprobs)


def test_forced_tokens_are_fed(library, model, solo):
    stream = solo(forced=(5, 6, 7, 8)).stream
    assert stream.tokens == (5, 6, 7, 8)
    assert near(
        stream.logprobs, library.teacher_forced(model, ASK, (5, 6, 7, 8), options=EngineOptions())
    )


def test_samplers_and_processors_are_applied(solo):
    biased = Request("a", PROMPT, 3, None, (Processor("library", {"logit_bias": {"9": 99.0}}),))
    assert solo(biased, steps=3).stream.tokens == (9, 9, 9)
    seeded = Request("a", PROMPT, 4, Sampler("seeded", {"temperature": 3.0, "seed": 1}))
    assert solo(seeded).stream.tokens == solo(seeded).stream.tokens != solo().stream.tokens


def test_a_perturbed_pass_moves_a_little_and_alike_for_a_seed(library, model):
    forced = functools.partial(
        library.teacher_forced, model, ASK, (5, 6, 7, 8), options=EngineOptions()
    )
    base = forced()
    one, again, other = (forced(ulps=2.0, seed=s) for s in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    assert 0 < np.abs(one - base).max() < 1e-3
    assert np.array_equal(forced(), base)  # and leaves no trace


def test_a_model_with_logits_of_the_last_token_only_is_reported(library):
    class Short:
        layers = ()

        def __call__(self, inputs, cache=None):
            return mx.zeros((1, 1, 8))

    with pytest.raises(ModelError, match="one pass over 3 tokens gave logits for 1 positions"):
        library.teacher_forced(Short(), Request("a", (1, 2), 2), (3, 4), options=EngineOptions())


def test_versions_and_device_are_named(library):
    assert {"python", "mlx", "mlx-lm", "numpy"} <= set(library.versions())
    assert library.device().startswith(("cpu", "gpu"))


def test_equal_rows_that_share_a_pass_give_what_the_row_alone_gives(library, model, solo):
    request = Request("a", PROMPT, 4)
    tokens = solo(request).stream.tokens
    for count in (0, 3):
        table = library.equal_rows(model, request, tokens[:count], 5)
        alone = library.stateless(model, request, tokens[:count])
        assert table.shape == (5, alone.shape[0])
        np.testing.assert_allclose(table, np.stack([alone] * 5), atol=1e-4)
