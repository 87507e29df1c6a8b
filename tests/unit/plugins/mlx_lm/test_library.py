"""mlx-lm as a library: three ways to the same numbers."""

import functools
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import CacheList, KVCache, QuantizedKVCache, RotatingKVCache

from conformance.core.engine_options import EngineOptions, KvQuant
from conformance.core.errors import ModelError, Unsupported
from conformance.core.family import load_family
from conformance.core.schedule import Request
from conformance.core.token_choice import Processor, Sampler
from conformance.plugins import mlx_lm as plugin
from conformance.plugins.mlx_lm.library import MlxLm, code_traits, make_cache
from conformance.run.registry import build_registry

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


def test_the_dtype_that_processors_are_given_is_known(library, model):
    assert library.logits_dtype(model, ASK, EngineOptions()) == "mlx.core.float32"


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


@pytest.fixture(scope="module")
def found():
    registry = build_registry()
    library = registry.libraries["mlx_lm"]

    def of(name):
        return code_traits(library.load(registry.families["mlx_lm", name], dtype="float32", seed=0))

    return of


def test_positions_that_no_layer_reads_differ_from_those_that_all_read(found):
    learned, rotary = found("gpt2"), found("llama")
    assert "offset:unread" in learned, "only the first layer's offset is a position"
    assert "offset:unread" not in rotary
    assert {"last:KVCache", "part:llama.Attention", "part:rope_utils.Llama3RoPE"} <= rotary


def test_what_decodes_no_batch_has_the_other_traits(found):
    traits = found("llama-dynamic")
    assert "part:rope_utils.DynamicNTKScalingRoPE" in traits
    assert "offset:unread" not in traits


EIGHT = KvQuant(8, group_size=32)


class Layered:
    layers = range(3)

    def make_cache(self):
        return [KVCache(), RotatingKVCache(4), CacheList(KVCache(), RotatingKVCache(4))]


@pytest.fixture(scope="module")
def wide():
    folder = Path(plugin.__file__).parent / "families"
    return MlxLm().load(load_family(folder / "llama-wide.json"), dtype="float32", seed=0)


def decode(model, kv):
    solo = MlxLm().single_stream(model, ASK, options=EngineOptions(kv=kv), steps=4)
    return solo.stream


def test_what_keeps_all_keys_is_quantized():
    made = make_cache(Layered(), EIGHT, 5)
    assert [type(cache) for cache in made] == [QuantizedKVCache, RotatingKVCache, CacheList]
    assert [type(inner) for inner in made[2].caches] == [QuantizedKVCache, RotatingKVCache]
    assert (made[0].bits, made[0].group_size) == (8, 32)


@pytest.mark.parametrize(("length", "kind"), [(4, KVCache), (5, QuantizedKVCache)])
def test_a_prompt_shorter_than_the_start_is_left_as_it_is(length, kind):
    made = make_cache(Layered(), KvQuant(8, group_size=32, start=5), length)
    assert type(made[0]) is kind


@pytest.mark.parametrize("kv", [KvQuant(3.5), KvQuant(4, scheme="turboquant")])
def test_what_the_library_has_no_caches_for_is_refused(kv):
    with pytest.raises(Unsupported, match="not supported"):
        make_cache(Layered(), kv, 5)


def test_fewer_bits_move_the_stream_the_more_the_fewer_they_are(wide):
    plain, eight, four = (decode(wide, kv) for kv in (None, EIGHT, KvQuant(4, group_size=32)))
    apart = [np.abs(s.logprobs[0] - plain.logprobs[0]).max() for s in (eight, four)]
    assert 1e-3 < apart[0] < apart[1] / 4


def test_one_pass_reads_what_the_single_stream_does(wide):
    options = EngineOptions(kv=EIGHT)
    stream = decode(wide, EIGHT)
    table = MlxLm().teacher_forced(wide, ASK, stream.tokens, options=options)
    assert np.abs(table - stream.logprobs).max() < 1e-3


def test_heads_are_as_wide_as_the_family_says(wide, model):
    assert MlxLm().head_sizes(wide) == {64}
    assert MlxLm().head_sizes(model) == {16}
