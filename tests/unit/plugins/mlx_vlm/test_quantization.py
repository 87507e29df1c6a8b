"""Caches of one row are quantized as a batch must, and a batch that leaves that is found out."""

import mlx.core as mx
import pytest
from mlx_vlm import turboquant
from mlx_vlm.generate import ar
from mlx_vlm.models import cache as caches

from conformance.core.engine_options import EngineOptions, KvQuant
from conformance.core.family import load_family
from conformance.core.phases import Phases
from conformance.core.schedule import Request
from conformance.core.verdict import Verdict
from conformance.plugins.mlx_vlm import compat, quantization
from conformance.plugins.mlx_vlm.engine import MlxVlmEngine
from conformance.plugins.mlx_vlm.library import MlxVlm
from conformance.plugins.mlx_vlm.plugin import FAMILIES
from conformance.reference.subject import Subject
from conformance.run.judging.judge import brief_for, judge_batched
from conformance.scenarios.quantized import QUANTIZED, START

UNIFORM, TURBO = KvQuant(8, 32), KvQuant(3.5)
FROM_START = KvQuant(3.5, start=START)
PLAIN, EIGHT = caches.KVCache, caches.QuantizedKVCache
TURBOQUANT = turboquant.TurboQuantKVCache


@pytest.fixture(scope="module")
def subject():
    family = load_family(FAMILIES / "qwen2_vl.json")
    return Subject.load(MlxVlm(), family, dtype="float32", seed=0, phases=Phases())


class Layers:
    """What the library needs of a model to make its caches."""

    def __init__(self, *kinds):
        self._kinds = kinds
        self.layers = kinds

    def make_cache(self):
        return [kind() for kind in self._kinds]


def rotating():
    return caches.RotatingKVCache(8)


def pair():
    return caches.CacheList(caches.KVCache(), rotating())


def kinds(entries):
    return [type(entry) for entry in entries]


@pytest.mark.parametrize(("kv", "kind"), [(UNIFORM, EIGHT), (TURBO, TURBOQUANT)])
def test_all_layers_but_the_last_are_quantized(kv, kind):
    made = quantization.make_cache(Layers(PLAIN, PLAIN, PLAIN), kv, 5)
    assert kinds(made) == [kind, kind, PLAIN]


def test_two_layers_are_both_quantized():
    assert kinds(quantization.make_cache(Layers(PLAIN, PLAIN), UNIFORM, 5)) == [EIGHT, EIGHT]


def test_sliding_layers_are_left_unchanged():
    made = quantization.make_cache(Layers(rotating, PLAIN, rotating, PLAIN), UNIFORM, 5)
    assert kinds(made) == [caches.RotatingKVCache, EIGHT, caches.RotatingKVCache, PLAIN]


def test_a_list_of_caches_is_quantized_inside():
    first, *_, last = quantization.make_cache(Layers(pair, PLAIN, pair), UNIFORM, 5)
    assert kinds(first.caches) == [EIGHT, caches.RotatingKVCache]
    assert kinds(last.caches) == [PLAIN, caches.RotatingKVCache]


def test_turboquant_leaves_a_prompt_unquantized_that_is_shorter_than_the_start():
    model = Layers(PLAIN, PLAIN, PLAIN)
    assert kinds(quantization.make_cache(model, FROM_START, START - 1)) == [PLAIN] * 3
    assert kinds(quantization.make_cache(model, FROM_START, START))[0] is TURBOQUANT
    uniform = KvQuant(8, 32, start=START)
    assert kinds(quantization.make_cache(model, uniform, START - 1))[0] is EIGHT


def test_bits_and_groups_are_those_of_the_options():
    first, *_ = quantization.make_cache(Layers(PLAIN, PLAIN), KvQuant(4, 64), 5)
    assert (first.bits, first.group_size) == (4, 64)
    first, *_ = quantization.make_cache(Layers(PLAIN, PLAIN), KvQuant(4, scheme="turboquant"), 5)
    assert (first.key_bits, first.value_bits) == (4, 4)
    first, *_ = quantization.make_cache(Layers(PLAIN, PLAIN), TURBO, 5)
    assert (first.key_bits, first.value_bits) == (3, 4)


def test_what_the_batch_refuses_is_refused_in_its_words():
    class Own(caches.KVCache):
        def to_batch(self, left_padding): ...

    with pytest.raises(NotImplementedError, match="does not support quantized continuous"):
        quantization.make_cache(Layers(Own, Own, Own), UNIFORM, 5)


def test_sizes_are_those_of_the_layers_that_are_quantized(subject):
    assert subject.library.head_sizes(subject.model) == {32}
    assert quantization.head_sizes([caches.KVCache(), rotating(), caches.KVCache()]) == set()


@pytest.mark.parametrize("bits", [8, 4])
def test_bytes_are_those_in_use(bits):
    quantized, plain = caches.QuantizedKVCache(64, bits), caches.KVCache()
    keys = mx.ones((1, 2, 10, 64))
    for one in (quantized, plain):
        assert quantization.nbytes(one) == 0
        one.update_and_fetch(keys, keys)
    assert quantization.nbytes(plain) == 2 * keys.nbytes
    # The published 3.6 and 6.4 times: a float32 scale and bias for each 64 elements.
    share = quantization.nbytes(quantized) / quantization.nbytes(plain)
    assert share == (bits + 1) / 32
    described = quantization.layers([quantized, plain])
    assert [layer.quantized for layer in described] == [True, False]


def test_noise_is_measured_with_quantized_caches(subject):
    request = Request("a", (5, 6, 7, 8, 9, 10), 3)
    library, model = subject.library, subject.model
    options = EngineOptions(kv=KvQuant(4, 32))
    stream = library.single_stream(model, request, options=options, steps=3).stream
    same = library.teacher_forced(model, request, stream.tokens, options=options)
    other = library.teacher_forced(model, request, stream.tokens, options=EngineOptions())
    assert abs(same - stream.logprobs).max() < 1e-5
    assert abs(other - stream.logprobs).max() > 1e-2


# What the catalogue of faults has not


def verdicts(subject, *names):
    brief = brief_for(subject, MlxVlmEngine, 0)
    chosen = [schedule for schedule in QUANTIZED.make(brief) if schedule.name in names]
    assert len(chosen) == len(names)
    outcome = judge_batched(subject, MlxVlmEngine, QUANTIZED, chosen)
    return {result.name: result.verdict for result in outcome.schedules}


BAD = {Verdict.DRIFT, Verdict.DIVERGED}


@pytest.mark.parametrize(
    "policy",
    [lambda index, count: index > 0, lambda index, count: False],
)
def test_another_layer_is_left_out_than_the_last(subject, monkeypatch, policy):
    monkeypatch.setattr(caches, "should_quantize_kv_layer", policy)
    found = verdicts(subject, "uniform_4_32")
    assert set(found.values()) <= BAD


def test_the_start_is_ignored(subject, monkeypatch):
    right = ar._make_cache

    def wrong(*args, **options):
        return right(*args, **{**options, "quantized_kv_start": 0})

    monkeypatch.setattr(ar, "_make_cache", wrong)
    found = verdicts(subject, "start_below", "start_above")
    assert found["start_below"] in BAD
    assert found["start_above"] is Verdict.EXACT


def test_the_start_is_never_reached(subject, monkeypatch):
    right = ar._make_cache

    def wrong(*args, **options):
        return right(*args, **{**options, "prefill_length": 0})

    monkeypatch.setattr(ar, "_make_cache", wrong)
    assert verdicts(subject, "start_above")["start_above"] in BAD


def test_the_engine_counts_bytes_that_the_library_does_not():
    batch = caches.BatchQuantizedKVCache([0], group_size=64, bits=8)
    keys = mx.ones((1, 2, 10, 64))
    batch.update_and_fetch(keys, keys)
    held = compat.nbytes(batch)
    assert held > 0
    assert compat.nbytes(caches.CacheList(caches.BatchKVCache([0]), batch)) == held
