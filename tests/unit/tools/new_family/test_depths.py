"""Which layers are kept."""

from hypothesis import example, given
from hypothesis import strategies as st

from conformance.tools.new_family.depths import MOST_LAYERS, choose

KINDS = st.lists(st.sampled_from("abcd"), min_size=1, max_size=60)


@given(KINDS, st.integers(1, 6))
@example(rows=list("bbcbbcbbcbbaa"), least=5)  # the last kind comes late: only firsts are kept
def test_every_kind_is_kept_in_order(rows, least):
    kept = choose(rows, least=min(least, len(rows)))
    assert {rows[index] for index in kept} == set(rows)
    assert kept == sorted(set(kept))
    assert len(kept) >= min(least, len(rows))


@given(KINDS)
def test_few_layers_are_kept(rows):
    assert len(choose(rows, least=1)) <= MOST_LAYERS


def test_runs_are_cut_to_two_and_each_kind_is_before_the_last():
    rows = list("sssssF" * 4)
    assert [rows[i] for i in choose(rows, least=4)] == list("ssFs")


def test_alternating_layers_stay_alternating():
    rows = list("sF" * 12)
    assert [rows[i] for i in choose(rows, least=4)] == list("sFsF")


def test_leading_layers_of_another_kind_stay_in_front():
    rows = list("dddmmmmmmm")
    assert [rows[i] for i in choose(rows, least=4)] == list("ddmm")


def test_a_model_of_one_layer_keeps_it():
    assert choose(["a"], least=1) == [0]


def test_many_kinds_that_come_late_are_found():
    rows = ["ab"[i % 2] for i in range(40)] + ["c"] + ["a"] * 10
    kept = [rows[i] for i in choose(rows, least=4)]
    assert set(kept) == {"a", "b", "c"}
    assert len(kept) <= MOST_LAYERS
