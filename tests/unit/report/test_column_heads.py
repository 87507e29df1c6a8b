"""Names of columns broken into the lines of their heads."""

import pytest

from conformance.report.column_heads import MOST_LINES, broken, head_lines, is_cut, letters_for
from conformance.scenarios import LADDER

NAMES = [scenario.name for scenario in LADDER]


@pytest.mark.parametrize(
    ("name", "letters", "lines"),
    [
        ("ragged", 3, ["rag", "ged"]),
        ("ragged", 5, ["rag", "ged"]),
        ("ragged", 6, ["ragged"]),
        ("early_finish", 4, ["ear", "ly", "fin", "ish"]),
        ("media_in_pieces", 3, ["med", "ia", "in", "pie", "ces"]),
        ("a_b_c_d_efg_hi", 3, ["abc", "def", "ghi"]),
        ("one_two_three_four_five", 3, ["one", "two", "thr", "eef", "ou."]),
        ("", 3, []),
    ],
)
def test_a_name_is_broken_at_its_words_and_these_evenly(name, letters, lines):
    assert broken(name, letters) == lines
    assert is_cut(name, letters) == any(line.endswith(".") for line in lines)


def test_no_scenario_of_the_ladder_is_cut_even_where_it_is_narrowest():
    assert not any(is_cut(name, 3) for name in NAMES)
    assert max(len(broken(name, 3)) for name in NAMES) <= MOST_LINES


@pytest.mark.parametrize(("room", "letters"), [(200, 6), (147, 6), (120, 5), (60, 5), (19, 3)])
def test_lines_are_as_long_as_the_same_number_of_blocks_allows(room, letters):
    found = [f"abcdef_{number:02}" for number in range(20)]
    assert letters_for(found, room) == letters


def test_heads_end_at_the_same_line():
    assert list(head_lines(["wide", "early_finish"], 5)) == [
        "      early",
        "      fin",
        "wide  ish",
    ]
