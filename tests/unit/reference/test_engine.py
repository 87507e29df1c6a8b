"""The state that the engine reports, and the limits of its batches."""

import pytest

from conformance.core.engine import Submission
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Request, Stage
from conformance.core.token_choice import Sampler
from conformance.reference.engine import Makers
from conformance.reference.prefill import Padded


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
