"""The reference engines are offered, decode mlx-lm's families, and are selected by name."""

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ArraysCache

from conformance.core.engine import Capability
from conformance.core.token_choice import Sampler
from conformance.plugins.reference_engine.engines import ReferencePadded, ReferenceSolo
from conformance.plugins.reference_engine.plugin import conformance_engines
from conformance.reference.oracle import Oracle
from conformance.run.registry import build_registry
from conformance.run.selection import DEFAULT_ENGINES

NAMES = ["reference_solo", "reference_padded", "reference_mixed"]


def test_there_are_three_engines_of_mlx_lm():
    engines = conformance_engines()
    assert [engine.name for engine in engines] == NAMES
    assert {engine.library for engine in engines} == {"mlx_lm"}
    assert not any(engine.__abstractmethods__ for engine in engines)
    assert not any(Capability.MEDIA in engine.capabilities for engine in engines)


def test_they_are_found_and_are_no_default():
    assert set(NAMES) <= set(build_registry().engines)
    assert not set(NAMES) & set(DEFAULT_ENGINES)


def test_samplers_are_the_librarys_own_and_each_requests_own():
    sampler = Sampler("seeded", {"temperature": 0.8, "seed": 1})
    for engine in conformance_engines():
        made = [engine.makers.sampler(sampler) for _ in range(2)]
        assert made[0] is not made[1]
        assert engine.makers.sampler(None) is None


def test_the_oracle_shares_no_code_with_them():
    names = Oracle.__init__.__globals__
    assert not any(
        getattr(value, "__module__", "").startswith(f"conformance.reference.{name}")
        for value in names.values()
        for name in ("engine", "forward", "caches", "sequence", "speculative", "prefill")
    )


class Widens:
    """A state of the last tokens: as many as came, up to ``most``."""

    def __init__(self, most):
        self.most = most

    def make_cache(self):
        return [ArraysCache(size=1)]

    def __call__(self, ids, cache):
        seen = ids if cache[0][0] is None else mx.concatenate([cache[0][0], ids], axis=-1)
        cache[0][0] = seen[:, -self.most :]
        return mx.zeros((*ids.shape, 4))


@pytest.mark.parametrize(("most", "apart"), [(3, True), (1, False)])
def test_without_padding_rows_of_a_state_that_widens_are_apart(most, apart):
    assert ("widens" in ReferenceSolo.apart(Widens(most))) is apart
    assert ReferencePadded.apart(Widens(most)) == ""
