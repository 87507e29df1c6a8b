"""What fails gets as small as what must fail allows, within its time, the same each time."""

import time

import pytest

from conformance.scenarios.minimizing import End, fewer, fewest, first_of, lower, minimize


def keep(value, kept):
    return "".join(kept) or None


LETTERS = fewer(list, keep)


def small(value, fails, *passes, seconds=30.0):
    return minimize(value, fails, passes or (LETTERS,), seconds=seconds, key=str)


@pytest.mark.parametrize("needed", ["a", "h", "bg", "abcdefgh"])
def test_the_parts_that_are_needed_are_left_and_no_others(needed):
    found = small("abcdefgh", lambda text: set(needed) <= set(text))
    assert found.value == needed
    assert found.end is End.SMALLEST


def test_large_runs_of_parts_are_left_out_first():
    found = small("x" * 500 + "a" + "x" * 500, lambda text: "a" in text)
    assert found.value == "a"
    assert found.tried < 60


def test_no_candidate_is_tried_twice_nor_the_value_itself():
    tried = []

    def fails(text):
        tried.append(text)
        return {"a", "d"} <= set(text)

    found = small("abcdef", fails, LETTERS, LETTERS)
    assert len(set(tried)) == len(tried) == found.tried
    assert "abcdef" not in tried


def test_a_value_that_cannot_be_is_not_tried():
    found = small("ab", bool)
    assert found.value == "b"


def test_parts_may_be_left_out_one_by_one_in_their_order():
    tried = []
    assert fewest("abc", lambda kept: tried.append("".join(kept)), at_once=1) == list("abc")
    assert tried == ["bc", "ac", "ab"]


@pytest.mark.parametrize("needed", [1, 2, 7, 99, 100])
def test_a_number_becomes_the_least_that_fails_by_halves(needed):
    numbers = lower(lambda pair: [(0, 1, pair[0]), (1, 0, pair[1])], put)
    found = small((100, 100), lambda pair: pair[0] >= needed, numbers)
    assert found.value == (needed, 0)
    assert found.tried <= 20


def put(pair, place, number):
    return (number, pair[1]) if place == 0 else (pair[0], number)


def test_passes_are_repeated_until_none_finds_anything():
    """Each letter can go only when the one before it has gone."""

    def without_last(text):
        return [text[:-1]] if text.endswith("c") else []

    def without_first(text):
        return [text[1:]] if not text.endswith("c") and text else []

    found = small("abc", lambda _: True, first_of(without_first), first_of(without_last))
    assert found.value == ""


def test_what_was_found_when_time_is_up_is_the_result():
    def slow(text):
        time.sleep(0.02)
        return "a" in text

    found = small("abcdefgh" * 30, slow, seconds=0.05)
    assert found.end is End.TIME
    assert "a" in found.value
    assert len(found.value) < 240
    assert 0 < found.tried <= 4


def test_without_time_nothing_is_tried():
    found = small("abc", lambda _: True, seconds=-1.0)
    assert (found.value, found.tried, found.end) == ("abc", 0, End.TIME)
