"""Engines side by side: the same batch, in turn, against the first."""

import time

from miniatures.library import ToyLibrary
from miniatures.model import VOCAB
from miniatures.right import ContinuousBatching

from conformance.core.family import Facts, Family
from conformance.run.registry import Registry
from conformance.tools.bench.ratios import ROWS, measure_throughput


class Slow(ContinuousBatching):
    """Right, and in no hurry."""

    def step(self):
        time.sleep(0.01)
        return super().step()


def test_a_slow_engine_has_a_small_ratio():
    registry = Registry(
        libraries={"toy": ToyLibrary()},
        families={("toy", "calm"): Family("calm", Facts(library="toy"), {"vocab_size": VOCAB})},
        engines={"fast": ContinuousBatching, "slow": Slow},
        scenarios={},
        faults={},
        plugins=(),
    )
    fast, slow = measure_throughput(registry, ("fast", "slow"), "calm")
    assert fast.ratio == 1.0
    assert slow.ratio < 0.9
    assert (slow.engine, slow.family, slow.rows) == ("slow", "calm", ROWS)
    assert slow.tokens_per_second < fast.tokens_per_second
