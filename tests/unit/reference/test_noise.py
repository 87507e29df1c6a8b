"""Noise: measured once a stream, from no more runs than needed, and never void."""

import numpy as np
import pytest
from miniatures.library import InsensitiveLibrary, OverflowingLibrary, ToyLibrary

from conformance.core.engine_options import EngineOptions, KvQuant
from conformance.core.errors import VoidNoiseError
from conformance.core.schedule import Request
from conformance.reference.noise import FEW_RUNS, PERTURBED_RUNS, THOROUGH_RUNS
from conformance.reference.oracle import MIN_STEPS, Oracle

DEFAULT = EngineOptions()


def oracle_of(library):
    return Oracle(library, library.load(None, dtype="float32", seed=0), "float32")


def ask(name="a", length=5, max_tokens=4, **more):
    return Request(name, tuple(range(1, length + 1)), max_tokens, **more)


def test_the_envelope_is_measured_once_a_stream():
    library = ToyLibrary()
    oracle = oracle_of(library)
    oracle.solo(ask(), DEFAULT, None)
    first = oracle.envelope(ask(), DEFAULT, None)
    assert first.measured
    assert len(first.full) == MIN_STEPS
    assert (first.full >= first.floor).all()
    assert oracle.envelope(ask("b", max_tokens=2), DEFAULT, None) is first
    assert library.passes == PERTURBED_RUNS + 1


def test_more_runs_are_never_narrower_and_hold_those_that_were_made():
    library = ToyLibrary()
    oracle = oracle_of(library)
    oracle.solo(ask(), DEFAULT, None)
    found = {}
    for fewer, runs in ((0, FEW_RUNS), (FEW_RUNS, PERTURBED_RUNS), (PERTURBED_RUNS, THOROUGH_RUNS)):
        before = library.passes
        found[runs] = oracle.envelope(ask(), DEFAULT, None, runs=runs)
        assert library.passes - before == runs - fewer + 1
        assert found[runs].few == (runs == FEW_RUNS)
        if fewer:
            assert (found[runs].top >= found[fewer].top).all()
            assert (found[runs].full >= found[fewer].full).all()
            assert (found[runs].full > found[fewer].full).any()
    at_once = oracle_of(ToyLibrary())
    at_once.solo(ask(), DEFAULT, None)
    for runs, noise in found.items():
        again = at_once.envelope(ask(), DEFAULT, None, runs=runs)
        assert np.array_equal(again.top, noise.top)
        assert oracle.envelope(ask(), DEFAULT, None, runs=runs) is noise


def test_few_runs_of_a_shorter_stream_are_not_those_of_a_longer():
    library = ToyLibrary()
    oracle = oracle_of(library)
    oracle.solo(ask(), DEFAULT, None)
    oracle.envelope(ask(), DEFAULT, None, runs=FEW_RUNS)
    longer = ask(max_tokens=MIN_STEPS + 2)
    oracle.solo(longer, DEFAULT, None)
    before = library.passes
    assert len(oracle.envelope(longer, DEFAULT, None).full) == MIN_STEPS + 2
    assert library.passes - before == PERTURBED_RUNS + 1


def test_a_perturbation_that_moves_nothing_is_an_error():
    oracle = oracle_of(InsensitiveLibrary())
    oracle.solo(ask(), DEFAULT, None)
    with pytest.raises(VoidNoiseError, match="moved no logprob"):
        oracle.envelope(ask(), DEFAULT, None)


def test_a_perturbation_that_gives_nan_is_an_error():
    oracle = oracle_of(OverflowingLibrary())
    oracle.solo(ask(), DEFAULT, None)
    with pytest.raises(VoidNoiseError, match="gave NaN"):
        oracle.envelope(ask(), DEFAULT, None)


QUANTIZED = EngineOptions(kv=KvQuant(8, 32))


class Noted(ToyLibrary):
    """Notes how each pass was perturbed, and with what options."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def teacher_forced(self, model, request, tokens, *, options, ulps=0.0, seed=0):
        self.asked.append((options.kv, ulps))
        return super().teacher_forced(model, request, tokens, options=options, ulps=ulps, seed=seed)


def noise_of(dtype, options):
    """The toy's noise: measured with the stream and along it, its floor, and what was asked."""
    library = Noted()
    oracle = Oracle(library, library.load(None, dtype="float32", seed=0), dtype)
    stream = oracle.solo(ask(), options, None)
    found = oracle.envelope(ask(), options, None)
    along = oracle.noise_along(ask(), options, stream)
    return found, along, oracle.floor_envelope(stream, options), library.asked


@pytest.mark.parametrize(
    ("dtype", "plain_ulps", "ulps"), [("float32", 2, 32), ("float16", 1, 2), ("bfloat16", 1, 1)]
)
def test_noise_of_quantized_rows_is_taken_on_quantized_caches(dtype, plain_ulps, ulps):
    """A rounding flips a code rarely: a larger perturbation, and eight times the floor."""
    plain, plain_along, plain_floor, asked = noise_of(dtype, DEFAULT)
    assert set(asked) == {(None, 0.0), (None, plain_ulps)}
    found, along, floor, asked = noise_of(dtype, QUANTIZED)
    assert set(asked) == {(QUANTIZED.kv, 0.0), (QUANTIZED.kv, ulps)}
    assert len(asked) == 2 * (PERTURBED_RUNS + 1)
    assert floor.floor == found.floor == along.floor == 8 * plain_floor.floor
    assert np.allclose(floor.full, 8 * plain_floor.full)
    assert (found.top >= plain.top[: len(found.top)]).all()
    assert (along.top >= plain_along.top[: len(along.top)]).all()


def test_noise_of_plain_rows_is_not_taken_for_that_of_quantized_ones():
    library = Noted()
    oracle = oracle_of(library)
    for options in (DEFAULT, QUANTIZED, EngineOptions(kv=KvQuant(4, 32))):
        before = library.passes
        oracle.solo(ask(), options, None)
        oracle.envelope(ask(), options, None)
        assert library.passes - before == PERTURBED_RUNS + 1
        assert library.asked[-1][0] == options.kv
