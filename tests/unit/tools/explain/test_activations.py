"""Relative errors of modules, position by position."""

import math

import numpy as np
import pytest

from conformance.backend.module_hooks import ModuleCall, Pass
from conformance.tools.explain.activations import by_position, errors, noise, relative
from conformance.tools.explain.alignment import Span

SEQUENCE = (5, 6, 7)


def passed(tokens, **made):
    """A pass in which the modules made these arrays, of the embedding's output."""
    calls = [ModuleCall(path, "Module", 0, None, np.float32(array)) for path, array in made.items()]
    return Pass(np.array(tokens), (), calls)


def of_positions(*positions):
    """What a module that gives 10 times the position makes: ``[1, length, 2]``."""
    return [[[10 * p + 1, 10 * p + 2] for p in positions]]


@pytest.fixture
def single():
    """A prompt of two tokens in one pass, then one token."""
    first = passed([[5, 6]], plain=of_positions(0, 1))
    second = passed([[7]], plain=of_positions(2))
    return by_position([first, second], SEQUENCE)


def test_positions_go_on_over_passes(single):
    assert {p: v.tolist() for p, v in single.made["plain", 0].items()} == {
        0: [1, 2],
        1: [11, 12],
        2: [21, 22],
    }


def test_a_row_with_padding_is_held_against_its_positions(single):
    batch = np.full((2, 3, 2), np.nan, np.float32)
    batch[1, 1:] = of_positions(0, 1)[0]
    call = ModuleCall("plain", "Module", 0, None, batch)
    _, right = errors(call, Span(1, "a", 1, 2, 0), single)
    assert right == [(0, 0.0), (1, 0.0)]
    batch[1, 2, 0] += 6
    _, wrong = errors(call, Span(1, "a", 1, 2, 0), single)
    assert wrong == [(0, 0.0), (1, 0.5)]


def test_positions_may_stand_on_another_axis():
    heads = np.arange(12, dtype=np.float32).reshape(1, 3, 2, 2)  # [batch, heads, length, features]
    single = by_position(
        [passed([[5, 6]], rope=heads), passed([[7]], rope=heads[:, :, :1])], SEQUENCE
    )
    assert single.axes["rope", 0][1] == 2


def test_what_has_no_positions_is_left_alone():
    flat = np.zeros((1, 7), np.float32)
    single = by_position([passed([[5, 6]], flat=flat), passed([[7]], flat=flat)], SEQUENCE)
    call = ModuleCall("flat", "Module", 0, None, np.ones((2, 7), np.float32))
    assert errors(call, Span(0, "a", 0, 2, 0), single) == ([], [])


@pytest.mark.parametrize(
    ("got", "want", "error"),
    [
        ([1, 2], [1, 2], 0.0),
        ([1, 3], [1, 2], 0.5),
        ([1, math.nan], [1, 2], math.inf),
        ([1, 5], [1, math.inf], 0.0),
        ([1, 2, 3], [1, 2], 0.0),
    ],
)
def test_relative(got, want, error):
    assert relative(np.float32(got), np.float32(want)) == error


def test_noise_is_the_largest_of_all_passes():
    right = [passed([[5]], a=[[[1.0]]], b=[[[2.0]]])] * 2
    moved = [passed([[5]], a=[[[1.5]]], b=[[[2.0]]]), passed([[5]], a=[[[1.25]]], b=[[[2.0]]])]
    assert noise(right, moved) == {"a": 0.5, "b": 0.0}


def test_inputs_of_another_size_are_not_compared(single):
    single.given["plain", 0] = {0: np.zeros(2, np.float32)}
    single.axes["plain", 0] = (1, 1)
    made = np.float32(of_positions(7))
    for size, compared in ((2, 1), (3, 0)):
        call = ModuleCall("plain", "Module", 0, np.zeros((1, 1, size), np.float32), made)
        given, found = errors(call, Span(0, "a", 0, 1, 0), single)
        assert (len(given), len(found)) == (compared, compared)


def test_inputs_of_only_some_passes_are_compared_in_those():
    first, second = passed([[5, 6]]), passed([[7]])
    first.calls.append(ModuleCall("", "Model", 0, np.float32(of_positions(0, 1)), None))
    second.calls.append(ModuleCall("", "Model", 0, None, None))
    assert set(by_position([first, second], SEQUENCE).given["", 0]) == {0, 1}
