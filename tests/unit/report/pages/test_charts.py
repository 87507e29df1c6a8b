"""Scales, ticks and points of charts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.report.pages import charts
from conformance.report.pages.charts import BOTTOM, LEFT, RIGHT, TOP, WIDTH

HEIGHT = 200.0
positive = st.floats(1e-30, 1e30)


@given(st.lists(positive, min_size=1))
def test_a_log_scale_keeps_all_in_the_plot_and_in_order(values):
    scale = charts.log_scale(values, height=HEIGHT)
    places = [scale.place(value) for value in sorted(values)]
    assert places == sorted(places, reverse=True)
    assert all(TOP - 1e-6 <= place <= HEIGHT - BOTTOM + 1e-6 for place in places)
    assert 2 <= len(scale.ticks) <= 9


def test_a_log_scale_has_decades():
    scale = charts.log_scale([1e-6, 20.0], height=HEIGHT)
    labels = [tick.label for tick in scale.ticks]
    assert labels[0] == "10⁻⁶"
    assert scale.ticks[0].at == HEIGHT - BOTTOM
    assert "1" in charts.power(0)


def test_zero_has_a_line_of_its_own_below_all_decades():
    scale = charts.log_scale([0.0, 1e-3, 1.0], height=HEIGHT)
    assert scale.ticks[0] == charts.Tick(HEIGHT - BOTTOM, "0")
    assert scale.place(1e-3) < scale.place(0.0)


@pytest.mark.parametrize("values", [[], [None], [0.0], [None, 0.0]])
def test_a_log_scale_of_nothing_can_be_drawn(values):
    scale = charts.log_scale(values, height=HEIGHT)
    assert all(TOP <= tick.at <= HEIGHT - BOTTOM for tick in scale.ticks)


@given(st.lists(st.floats(0, 1e12), min_size=1), st.sampled_from([10, 1024]))
def test_a_linear_scale_begins_at_zero_and_reaches_the_largest(values, base):
    scale = charts.linear_scale(values, height=HEIGHT, label=str, base=base)
    assert scale.place(0) == scale.ticks[0].at == HEIGHT - BOTTOM
    assert min(scale.place(value) for value in values) >= TOP - 1e-6
    assert 2 <= len(scale.ticks) <= 6


def test_bytes_have_ticks_at_powers_of_two():
    scale = charts.linear_scale([786432], height=HEIGHT, label=charts.size, base=1024)
    assert [tick.label for tick in scale.ticks] == ["0 B", "256 KiB", "512 KiB", "768 KiB"]


@pytest.mark.parametrize(
    ("nbytes", "text"), [(0, "0 B"), (1536, "1.5 KiB"), (3 * 2**30, "3 GiB"), (2**42, "4096 GiB")]
)
def test_sizes_as_text(nbytes, text):
    assert charts.size(nbytes) == text


@pytest.mark.parametrize("count", [0, 1, 9, 13, 200])
def test_columns_fill_the_plot_and_few_are_named(count):
    width, ticks = charts.columns(count)
    assert width * max(count, 1) == pytest.approx(WIDTH - LEFT - RIGHT)
    assert len(ticks) <= 12
    assert [tick.label for tick in ticks[:1]] == (["0"] if count else [])


def test_a_line_is_interrupted_where_a_number_is_not_finite():
    scale = charts.log_scale([1.0, 10.0], height=HEIGHT)
    line = charts.line("d", "difference", (1.0, None, 10.0), scale, width=10, unit="nats")
    assert [len(run) for run in line.runs] == [1, 1, 1]
    first, lost, last = line.points
    assert (lost.missing, lost.y, lost.text) == (True, TOP, "d at 1: not finite")
    assert (first.text, last.x) == ("d at 0: 1 nats", LEFT + 25)
