"""What the comparisons say together."""

import itertools

import pytest

from conformance.tools.golden.difference import HOLDS, Difference, Part, in_short


def test_each_combination_has_a_meaning_of_its_own():
    runs = (Part.SINGLE, Part.GOLDEN, Part.BATCH)
    said = [
        in_short([Difference(part, "short", "") for part in parts])
        for count in range(4)
        for parts in itertools.combinations(runs, count)
    ]
    assert said[0] == HOLDS
    assert len(set(said)) == len(said) == 8


@pytest.mark.parametrize("part", list(Part))
def test_nothing_but_nothing_holds(part):
    assert in_short([Difference(part, "short", "")]) != HOLDS


def test_a_difference_names_its_batch_and_its_entries():
    alone = Difference(Part.SINGLE, "short", "request 'short': off")
    assert str(alone) == "single stream against golden: request 'short': off"
    batched = Difference(
        Part.GOLDEN, "short", "off", engine="toy", schedule="ragged", known=("a", "b")
    )
    assert str(batched) == "batched against golden (toy, batch ragged): off [known: a, b]"
