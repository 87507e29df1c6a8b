"""A stopwatch: each second is booked once, on the innermost phase."""

import pytest

from conformance.core import phases as module
from conformance.core.phases import ForwardCall, Phases


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is set."""

    class Clock:
        now = 100.0

        def perf_counter(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def walls(phases):
    return {name: spent.wall for name, spent in phases.spent.items()}


def test_time_goes_to_the_phase_it_is_spent_in(clock):
    phases = Phases()
    with phases("load"):
        clock.now += 2
    clock.now += 50  # in no phase
    with phases("engine"):
        clock.now += 3
    with phases("load"):
        clock.now += 1
    assert walls(phases) == {"load": 3, "engine": 3}


def test_an_inner_phase_stops_the_outer_ones_clock(clock):
    phases = Phases()
    with phases("checks"):
        clock.now += 1
        with phases("noise"):
            clock.now += 10
        clock.now += 2
    assert walls(phases) == {"checks": 3, "noise": 10}


def test_model_calls_go_to_the_phase_that_made_them(clock):
    phases, meter = Phases(), [ForwardCall(1, 1, 99.0)]
    phases.read(meter)
    with phases("engine"):
        meter.append(ForwardCall(2, 1, 0.5))
        with phases("noise"):
            meter.append(ForwardCall(2, 1, 0.25))
        meter.append(ForwardCall(2, 1, 0.125))
    assert phases.spent["engine"].forward == 0.625
    assert phases.spent["noise"].forward == 0.25


def test_another_meter_is_read_from_where_it_stands(clock):
    phases, one, two = Phases(), [], [ForwardCall(1, 1, 9.0)]
    phases.read(one)
    with phases("engine"):
        one.append(ForwardCall(1, 1, 1.0))
        phases.read(two)
        two.append(ForwardCall(1, 1, 2.0))
        one.append(ForwardCall(1, 1, 50.0))
    assert phases.spent["engine"].forward == 3.0


def test_a_phase_ends_with_an_exception(clock):
    phases = Phases()

    def fail():
        with phases("engine"):
            clock.now += 1
            raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        fail()
    clock.now += 7
    with phases("checks"):
        clock.now += 2
    assert walls(phases) == {"engine": 1, "checks": 2}
