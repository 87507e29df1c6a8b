"""What is measured beside the calls of a run, and after which steps."""

import mlx.core as mx
import pytest

from conformance.core.schedule import Weigh
from conformance.run.measuring import Measuring

STEPS = range(21)


@pytest.mark.parametrize(
    ("weigh", "steps"),
    [
        (None, []),
        (Weigh.KEPT, []),
        (Weigh.STORED, []),
        (Weigh.READS, []),
        (Weigh.GRAPH, list(STEPS)),
        (Weigh.ALIVE, list(STEPS)),
        (Weigh.SAMPLED, [0, 10, 20]),
    ],
)
def test_memory_is_measured_after_the_steps_that_the_schedule_asks_for(weigh, steps):
    measuring = Measuring(weigh)
    assert [index for index in STEPS if measuring.after(index)] == steps


def test_arrays_of_a_run_are_counted_and_none_of_before():
    before = mx.zeros(1000)
    measuring = Measuring(Weigh.SAMPLED)
    with measuring.on():
        first = measuring.alive(0, 0)
        held = [mx.zeros(5) for _ in range(3)]
        assert measuring.alive(5, 0) is None
        assert measuring.alive(10, 0).arrays == first.arrays + len(held)
    assert before.size == 1000


def test_of_a_graph_alone_no_arrays_are_counted():
    assert Measuring(Weigh.GRAPH).alive(0, 0) is None


def read(array):
    return array.tolist()


def test_reads_are_given_once_with_their_place():
    measuring = Measuring(Weigh.READS)
    with measuring.on():
        assert measuring.reads() == ()
        read(mx.arange(2) + 1)
        read(mx.arange(3) + 1)
        first, second = measuring.reads()
        assert first == second
        assert "run/test_measuring.py:" in first
        assert first.endswith(" tolist")
        assert measuring.reads() == ()
        read(mx.arange(4) + 1)
        assert len(measuring.reads()) == 1


def test_reads_are_none_where_they_are_not_counted():
    measuring = Measuring(Weigh.ALIVE)
    with measuring.on():
        read(mx.arange(2) + 1)
        assert measuring.reads() is None
