"""Shares of unquantized caches, from two runs written by hand."""

import pytest

from conformance.checks.cache_bytes import Shares, cache_shares
from conformance.core.schedule import Arrival, Request, Schedule
from conformance.core.trace import CachedLayer, Mode, Step, StepOutput, Trace

SCHEDULE = Schedule("s", (Arrival((Request("a", (1,), 1),)),))


def run(*steps):
    """A run whose layers hold so many bytes after each step; with a q they are quantized."""
    return Trace(
        SCHEDULE,
        Mode.FORCED,
        tuple(
            Step(index, {}, StepOutput(), layers=tuple(map(layer, text.split())))
            for index, text in enumerate(steps)
        ),
    )


def layer(text):
    return CachedLayer(int(text.rstrip("q")), text.endswith("q"))


def test_the_share_of_all_layers_and_of_the_quantized_ones():
    found = cache_shares(run("25q 25q 100"), run("100 100 100"))
    assert found == Shares(0.5, 0.25)


def test_the_fullest_step_counts():
    found = cache_shares(run("9q 9", "20q 100", "9q 9"), run("10 10", "100 100", "20 20"))
    assert found == Shares(0.6, 0.2)


@pytest.mark.parametrize(
    ("trace", "plain"),
    [
        (run(""), run("")),
        (run("10 10"), run("10 10")),
        (run("5q"), run("10 10")),
        (run("0q 10"), run("0 10")),
        (run(), run("10")),
    ],
)
def test_without_quantized_layers_there_is_no_share(trace, plain):
    assert cache_shares(trace, plain) is None
