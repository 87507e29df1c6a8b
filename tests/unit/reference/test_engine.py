"""The state that the engine reports, and the limits of its batches."""

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
from conformance.core.schedule import Request, Stage
from conformance.core.token_choice import Sampler
from conformance.reference.engine import Makers, from_the_start
from conformance.reference.prefill import Mixed, Padded, Solo


def make(model, maker=lambda sampler: None, **options):
    engine_class = type("Made", (Padded,), {"makers": Makers(maker, lambda processors: [])})
    return engine_class(model, EngineOptions(**options))


def submit(engine, *names, **more):
    engine.insert([Submission(Request(name, (1, 2, 3), 4, **more)) for name in names])


def test_no_more_prompts_and_rows_than_the_options_allow(tiny):
    engine = make(tiny("keys"), prefill_batch_size=2, completion_batch_size=3)
    submit(engine, *"abcde")
    engine.step()
    prefill, decode, queued = Stage.PREFILL, Stage.DECODE, Stage.QUEUED
    assert list(engine.stages().values()) == [queued] * 3 + [prefill] * 2
    engine.step()
    engine.step()
    assert engine.stages() == {"a": decode, "b": decode, "c": prefill, "d": queued, "e": queued}


def test_rows_are_places_in_the_decode_pass(tiny):
    engine = make(tiny("keys"))
    submit(engine, *"abc")
    engine.step()
    engine.step()
    assert engine.rows() == {"a": 0, "b": 1, "c": 2}
    engine.remove(["a"])
    assert engine.rows() == {"b": 0, "c": 1}


def test_bytes_are_of_live_rows_only(tiny):
    engine = make(tiny("keys", "state"))
    assert engine.cache_bytes() == 0
    submit(engine, *"ab")
    engine.step()
    both = engine.cache_bytes()
    engine.remove(["b"])
    assert both > engine.cache_bytes() == both / 2
    while engine.stages():
        engine.step()
    assert engine.cache_bytes() == 0


def test_layers_are_those_of_the_rows_that_decode(tiny):
    engine = make(tiny("keys", "state"))
    submit(engine, "a")
    assert not engine.layers()
    engine.step()
    engine.step()
    assert [layer.nbytes > 0 for layer in engine.layers()] == [True, True]
    assert sum(layer.nbytes for layer in engine.layers()) == engine.cache_bytes()


def test_an_insert_that_is_refused_takes_nothing(tiny):
    engine = make(tiny("keys"))
    with pytest.raises(ValueError, match="id is in use"):
        submit(engine, "a", "a")
    assert not engine.stages()


def test_makers_are_called_for_each_request(tiny):
    made_for = []
    engine = make(tiny("keys"), maker=made_for.append)
    sampler = Sampler("seeded", {"seed": 1})
    submit(engine, "a", sampler=sampler)
    submit(engine, "b")
    assert made_for == [sampler, None]


def test_an_extract_is_a_copy(tiny):
    engine = make(tiny("keys"))
    submit(engine, "a")
    engine.step()
    engine.step()
    (cache,), tokens = engine.extract("a")
    assert cache.offset == len(tokens) == 3
    engine.step()
    assert cache.offset == 3
    engine.close()
    assert not engine.stages()


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
        caches = from_the_start(make_prompt_cache(model), kv, len(prompt))
        want = solo(model, prompt, 4, caches)[1]
        got = np.stack([event.logprobs for event in streams[name]])
        assert np.abs(got - want).max() < 1e-3
    assert (True, False, True) in quantized_layers
    # Bits that were not dropped would be no quantization.
    assert np.abs(want - solo(model, prompt, 4)[1]).max() > 1e-3


def test_what_keeps_all_keys_is_quantized_if_the_prompt_is_long_enough():
    caches = [KVCache(), RotatingKVCache(4), CacheList(KVCache(), RotatingKVCache(4))]
    made = from_the_start(caches, FROM_FIVE, 5)
    assert [type(cache) for cache in made] == [QuantizedKVCache, RotatingKVCache, CacheList]
    assert type(made[2][0]) is QuantizedKVCache
    assert made[0].bits == 4
    assert from_the_start(caches, FROM_FIVE, 4) == caches


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
        from_the_start(caches, kv, 9)
