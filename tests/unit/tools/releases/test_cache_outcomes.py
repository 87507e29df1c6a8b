"""Cache classes of several releases, compared."""

import pytest

from conformance.core.errors import ResultError
from conformance.tools.releases.cache_outcomes import (
    CacheOutcome,
    Difference,
    changes,
    read_outcomes,
)

WRONG = Difference("merge, contents: row #", "contents: row 3 holds other tokens", ("new", "merge"))


def outcome(*differences, methods=("merge",), name="mlx_lm.BatchKVCache"):
    return CacheOutcome(name, "known", methods, differences)


def test_what_is_alike_is_not_noted():
    assert changes([("0.1", [outcome(WRONG)]), ("0.2", [outcome(WRONG)])]) == []


def test_a_difference_that_goes_is_noted_with_its_sequence():
    (line,) = changes([("0.1", [outcome(WRONG)]), ("0.2", [outcome()])])
    assert line == (
        "mlx_lm.BatchKVCache after new, merge: differs in 0.1; not in 0.2 - "
        "contents: row 3 holds other tokens"
    )


def test_one_difference_does_not_hide_another():
    other = Difference("trim, offset: #", "offset: 3", ("trim",))
    (line,) = changes([("0.1", [outcome(WRONG, other)]), ("0.2", [outcome(WRONG)])])
    assert "after trim: differs in 0.1; not in 0.2" in line


def test_a_method_and_a_class_that_come_are_noted():
    two = outcome(methods=("merge", "prepare"))
    new = outcome(name="mlx_lm.CacheList")
    assert changes([("0.1", [outcome()]), ("0.2", [two, new])]) == [
        "mlx_lm.BatchKVCache prepare: not in 0.1; is there in 0.2",
        "mlx_lm.CacheList: not in 0.1; is there in 0.2",
    ]


def test_a_release_without_outcomes_says_nothing():
    assert changes([("0.1", []), ("0.2", [outcome(WRONG)])]) == []


def test_a_file_that_is_something_else_names_its_line(tmp_path):
    file = tmp_path / "caches.jsonl"
    file.write_text('{"class": "a"}\n{"name": 3}\n')
    with pytest.raises(ResultError, match="line 2"):
        read_outcomes(file)
