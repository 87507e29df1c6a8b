"""Values of templates by the end of a path."""

import pytest

from conformance.tools.repro.template_values import by_suffix, value_of


@pytest.mark.parametrize(
    "values",
    [
        {"a.weight": 1},
        {"a.weight": 1, "b.weight": 2, "c.weight": 2},
        {"layers.0.mlp.weight": 1, "layers.1.mlp.weight": 2, "layers.2.mlp.weight": 1},
        {"norm.weight": 1, "q_norm.weight": 2, "x.norm.weight": 2},
        {"weight": 1, "a.weight": 2},
    ],
)
def test_each_path_has_its_value(values):
    rows = by_suffix(values)
    assert {path: value_of(path, rows) for path in values} == values


def test_an_ending_begins_at_a_point():
    rows = by_suffix({"a.norm.weight": 1, "a.q_norm.weight": 2, "a.k_norm.weight": 2})
    assert rows == [(".norm.weight", 1), ("", 2)]


def test_a_path_that_others_end_like_is_named_whole():
    rows = by_suffix({"norm.weight": 1, "x.norm.weight": 2, "y.other": 2})
    assert rows == [("/norm.weight", 1), ("", 2)]


def test_the_value_with_the_longest_endings_is_the_rest():
    rows = by_suffix({"a.bias": 1, "b.long_name": 2, "c.longer_name": 2})
    assert rows == [(".bias", 1), ("", 2)]
