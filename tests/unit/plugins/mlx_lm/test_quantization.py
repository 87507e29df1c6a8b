"""Which caches of one request are quantized, and what comes of it."""

from pathlib import Path

import numpy as np
import pytest
from mlx_lm.models.cache import CacheList, KVCache, QuantizedKVCache, RotatingKVCache

from conformance.core.engine_options import EngineOptions, KvQuant
from conformance.core.errors import Unsupported
from conformance.core.family import load_family
from conformance.core.schedule import Request
from conformance.plugins import mlx_lm as plugin
from conformance.plugins.mlx_lm import quantization
from conformance.plugins.mlx_lm.library import MlxLm

EIGHT = KvQuant(8, group_size=32)
ASK = Request("a", tuple(range(1, 12)), 4)


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
    made = quantization.make_cache(Layered(), EIGHT, 5)
    assert [type(cache) for cache in made] == [QuantizedKVCache, RotatingKVCache, CacheList]
    assert [type(inner) for inner in made[2].caches] == [QuantizedKVCache, RotatingKVCache]
    assert (made[0].bits, made[0].group_size) == (8, 32)


@pytest.mark.parametrize(("length", "kind"), [(4, KVCache), (5, QuantizedKVCache)])
def test_a_prompt_shorter_than_the_start_is_left_as_it_is(length, kind):
    made = quantization.make_cache(Layered(), KvQuant(8, group_size=32, start=5), length)
    assert type(made[0]) is kind


@pytest.mark.parametrize("kv", [KvQuant(3.5), KvQuant(4, scheme="turboquant")])
def test_what_the_library_has_no_caches_for_is_refused(kv):
    with pytest.raises(Unsupported, match="not supported"):
        quantization.make_cache(Layered(), kv, 5)


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
