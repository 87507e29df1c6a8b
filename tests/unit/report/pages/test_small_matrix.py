"""The small picture of a matrix."""

import re

import pytest
import results_by_hand
from results_by_hand import make_result

from conformance.core.verdict import Verdict
from conformance.report.matrix import Cell
from conformance.report.pages.small_matrix import COLOURS, colour, small_matrices


def cells(stroke):
    """The cells that a path goes over: column and row of each."""
    found = set()
    for x, y, width in re.findall(r"M(\d+)\.1 (\d+)\.5h(\d+)\.8", stroke):
        found |= {(int(x) + n, int(y)) for n in range(int(width) + 1)}
    return found


@pytest.mark.parametrize(
    ("verdict", "expected", "name"),
    [
        (Verdict.EXACT, True, "good"),
        (Verdict.TIE, True, "tie"),
        (Verdict.UNSUPPORTED, True, "none"),
        (Verdict.POLICY, True, "none"),
        (Verdict.CRASH, True, "known"),
        (Verdict.VACUOUS, True, "known"),
        (Verdict.DRIFT, False, "bad"),
        (Verdict.EXACT, False, "bad"),
    ],
)
def test_a_cell_has_the_colour_of_the_large_matrix(verdict, expected, name):
    assert colour(Cell(verdict, expected)) == name


def test_each_cell_is_drawn_once_in_its_place():
    results = results_by_hand.few()
    for small in small_matrices(results, results_by_hand.SCENARIOS):
        drawn = [cell for _, stroke in small.strokes for cell in cells(stroke)]
        assert len(drawn) == len(set(drawn)) == len(small.families) * len(small.scenarios)
    first = small_matrices(results, results_by_hand.SCENARIOS)[0]
    names = [family.name for family in first.families]
    assert cells(dict(first.strokes)["bad"]) == {(names.index("qwen3"), 1)}
    assert cells(dict(first.strokes)["tie"]) == {(names.index("gemma3"), 1)}
    assert dict(first.counts)[COLOURS["good"]] == 16


def test_what_was_not_run_is_empty():
    results = [make_result("e/a/one/d/0"), make_result("e/b/two/d/0"), make_result("e/c/one/d/0")]
    (small,) = small_matrices(results, ("one", "two"))
    assert cells(dict(small.strokes)["good"]) == {(0, 0), (2, 0), (1, 1)}


def test_cells_side_by_side_are_one_stroke():
    material = results_by_hand.many(families=400, scenarios=3)
    right = [result for result in material.results if result.verdict is Verdict.EXACT]
    results = [*right, *(make_result(f"mlx_lm/x{n}/scenario_0/float32/0") for n in range(400))]
    (small,) = small_matrices(results, material.inventory.scenarios)
    stroke = dict(small.strokes)["good"]
    assert max(int(width) for width in re.findall(r"h(\d+)\.8", stroke)) >= 399
    assert len(cells(stroke)) == len(results)


def test_a_family_says_what_its_cells_are():
    found = small_matrices(results_by_hand.few(), results_by_hand.SCENARIOS)[0]
    texts = {family.name: family.text for family in found.families}
    assert texts["mamba"] == "mamba: 1 known defect, 1 unsupported or a policy, 2 exact"
