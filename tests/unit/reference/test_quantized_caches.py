"""Rows with keys and values in fewer bits give what a quantized row gives alone."""

import numpy as np
import pytest
from mlx_lm.models.cache import (
    CacheList,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
    make_prompt_cache,
)

from conformance.core.engine import Submission
from conformance.core.engine_options import EngineOptions, KvQuant
from conformance.core.errors import Unsupported
from conformance.core.schedule import Request
from conformance.reference import quantized_caches
from conformance.reference.engine import Makers
from conformance.reference.prefill import Mixed, Padded, Solo

PROMPTS = {"a": (3, 1, 4, 1, 5, 9, 2, 6, 5), "b": (2, 7), "c": (1,), "d": (8, 2, 8, 1, 8, 2)}
EIGHT = KvQuant(8, group_size=32)
FROM_FIVE = KvQuant(4, group_size=32, start=5)


class Plain:
    makers = Makers(lambda sampler: None, lambda processors: [])


ENGINES = [type(base.__name__, (Plain, base), {}) for base in (Solo, Padded, Mixed)]


@pytest.mark.parametrize("engine_class", ENGINES, ids=lambda engine: engine.__name__)
@pytest.mark.parametrize("kv", [EIGHT, FROM_FIVE], ids=["8 bits", "4 bits from 5 tokens on"])
def test_each_row_is_what_a_quantized_single_stream_is(tiny, solo, engine_class, kv):
    model = tiny("keys", "window", "list")
    engine = engine_class(model, EngineOptions(prefill_step_size=3, kv=kv))
    engine.insert([Submission(Request(name, prompt, 4)) for name, prompt in PROMPTS.items()])
    streams, quantized_layers = {}, []
    while engine.stages():
        for event in engine.step().events:
            streams.setdefault(event.request_id, []).append(event)
        quantized_layers.append(tuple(layer.quantized for layer in engine.layers()))
    for name, prompt in PROMPTS.items():
        caches = quantized_caches.from_the_start(make_prompt_cache(model), kv, len(prompt))
        want = solo(model, prompt, 4, caches)[1]
        got = np.stack([event.logprobs for event in streams[name]])
        assert np.abs(got - want).max() < 1e-3
    assert (True, False, True) in quantized_layers
    # Bits that were not dropped would be no quantization.
    assert np.abs(want - solo(model, prompt, 4)[1]).max() > 1e-3


def test_what_keeps_all_keys_is_quantized_if_the_prompt_is_long_enough():
    caches = [KVCache(), RotatingKVCache(4), CacheList(KVCache(), RotatingKVCache(4))]
    made = quantized_caches.from_the_start(caches, FROM_FIVE, 5)
    assert [type(cache) for cache in made] == [QuantizedKVCache, RotatingKVCache, CacheList]
    assert type(made[2][0]) is QuantizedKVCache
    assert made[0].bits == 4
    assert quantized_caches.from_the_start(caches, FROM_FIVE, 4) == caches


@pytest.mark.parametrize(
    ("caches", "kv"),
    [
        ([RotatingKVCache(4)], EIGHT),
        ([KVCache()], KvQuant(3.5)),
        ([KVCache()], KvQuant(4, scheme="turboquant")),
    ],
)
def test_what_it_cannot_quantize_it_refuses(caches, kv):
    with pytest.raises(Unsupported, match="not supported"):
        quantized_caches.from_the_start(caches, kv, 9)
