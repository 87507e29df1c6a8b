"""The first page."""

import re

import pytest
import results_by_hand
from results_by_hand import make_result

from conformance.core.inventory import Inventory
from conformance.core.invocation import Invocation
from conformance.core.verdict import Verdict
from conformance.report.matrix import Cell, matrices
from conformance.report.pages.environment import Renderer, case_href
from conformance.report.pages.material import Material
from conformance.report.pages.overview import (
    COLOURS,
    SmallMatrix,
    colour,
    known,
    lanes,
    power,
    render_overview,
    runs,
    share,
    shown_matrices,
    small_matrix,
)
from conformance.report.trials import Kill, Outcome, Trial


def trial(outcome, family="llama", ratio=None, dtype="float32"):
    kills = (Kill("ragged", "diverged", ("tokens",), ratio),) if ratio else ()
    return Trial("B1.mask", "B1", "mlx_lm", family, dtype, 0, outcome, kills=kills, noise=2.0)


@pytest.mark.parametrize("changes", [{"missing": 1}, {"problems": ("shard 1/2 not there",)}])
def test_what_is_not_whole_is_not_green(changes):
    right = (results_by_hand.make_result(),)
    material = Material(right, Inventory(), **changes)
    page = render_overview(material, Renderer())
    assert '<p class="headline bad">1 case as expected, 1 ' in page
    assert all(problem in page for problem in changes.get("problems", ()))


def test_power_counts_pairs_that_could_be_caught():
    outcomes = (Outcome.KILLED, Outcome.KILLED, Outcome.SURVIVED, Outcome.HIDDEN)
    (found,) = power([trial(o) for o in (*outcomes, Outcome.NOT_APPLICABLE)])
    assert (found.killed, found.survived, found.hidden, found.pairs) == (2, 1, 1, 3)


def test_separation_shows_the_closest_families_of_each_dtype():
    trials = [trial(Outcome.KILLED, f"f{n}", ratio=1000.0 - n) for n in range(9)]
    full, half = power([*trials, trial(Outcome.KILLED, ratio=50.0, dtype="bfloat16")])
    assert (full.dtype, half.dtype) == ("float32", "bfloat16")
    assert (full.families, len(full.closest)) == (9, 5)
    assert full.closest[0].family == "f8"
    assert full.least == 100.0


def test_a_case_of_several_defects_counts_for_each():
    results = [
        results_by_hand.make_result(f"e/f{n}/ragged/float32/0", known=text)
        for n, text in enumerate(("b, a", "b", None))
    ]
    assert known(results) == [("b", 2), ("a", 1)]


def test_each_run_has_its_cases_in_order_of_time():
    late, early = Invocation("2026-11-22T10:00:00Z", "b"), Invocation("2026-11-21T10:00:00Z", "c")
    results = [
        results_by_hand.make_result(f"e/f{n}/ragged/float32/0", invocation=run)
        for n, run in enumerate((late, None, early, late))
    ]
    assert runs(results) == [(early, 1), (late, 2), (None, 1)]
    assert runs([]) == []


def test_results_without_a_command_are_said_to_have_none():
    result = results_by_hand.make_result(invocation=None)
    assert "1 case of results without command and date" in overview([result], Inventory())


def test_many_runs_are_counted():
    results = [
        results_by_hand.make_result(
            f"e/f{n:02}/ragged/float32/0", invocation=Invocation(f"2026-11-{n + 1:02}", f"run {n}")
        )
        for n in range(15)
    ]
    text = overview(results, Inventory())
    assert "<code>run 11</code>: 1 case" in text
    assert "<code>run 12</code>" not in text
    assert "and 3 more runs" in text


def overview(results, inventory, trials=()):
    material = Material(tuple(results), inventory, trials=tuple(trials))
    return render_overview(material, Renderer())


def test_without_a_power_file_the_page_says_so():
    few, inventory = results_by_hand.few(), results_by_hand.inventory()
    assert "no result file of <code>conformance audit power</code>" in overview(few, inventory)
    text = overview(few, inventory, [trial(Outcome.KILLED, ratio=50.0)])
    assert "1 of 1 pairs" in text
    assert "too small" in text


def test_each_finding_leads_to_its_cases():
    cases = [f"e/a/{name}/float32/0" for name in results_by_hand.SCENARIOS]
    wrong = [results_by_hand.make_result(case, Verdict.DRIFT) for case in cases]
    text = overview(wrong, results_by_hand.inventory())
    assert text.count('unexpected" aria-hidden="true">~!</span> <bdi>') == 1
    assert "a: 4 cases fail, first at <code>repeat</code>: request &#39;b&#39; differs" in text
    assert "<summary>and 3 more</summary>" in text
    assert all(case_href(case) in text for case in cases)


def test_many_findings_are_counted():
    leaks = [
        results_by_hand.make_result(
            f"e/f{n}/ragged/float32/0",
            Verdict.LEAK,
            evidence=(results_by_hand.make_finding(Verdict.LEAK, check=f"c{n}"),),
        )
        for n in range(25)
    ]
    text = overview(leaks, results_by_hand.inventory())
    assert text.count("<li><span") == 20
    assert "and 5 more findings: all their cases, in the matrix" in text


# Honest denominators -----------------------------------------------------------------------------


def test_what_was_not_run_counts_as_not_proven():
    lane = next(iter(lanes(results_by_hand.few(), results_by_hand.inventory())))
    assert (lane.engine, lane.dtype) == ("mlx_lm", "float32")
    assert (lane.families_run, lane.families) == (5, 6)
    assert (lane.run, lane.missing, lane.applicable) == (20, 10, 30)
    assert lane.proven + lane.wrong + lane.undecided == lane.run
    assert lane.share == 17 / 30


def test_known_defects_are_wrong_all_the_same():
    lane = next(iter(lanes(results_by_hand.few(), results_by_hand.inventory())))
    assert (lane.wrong, lane.known, lane.unexpected) == (2, 1, 1)


def test_of_an_engine_that_is_not_installed_no_share_is_reported():
    (lane,) = lanes([results_by_hand.make_result()], Inventory())
    assert (lane.families, lane.missing, lane.applicable, lane.share) == (None, None, None, None)


# The small picture of a matrix -------------------------------------------------------------------


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


def small_matrices(results, order):
    return [small_matrix(matrix) for matrix in matrices(results, order)]


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


def test_cells_side_by_side_are_one_stroke():
    material = results_by_hand.many(families=400, scenarios=3)
    right = [result for result in material.results if result.verdict is Verdict.EXACT]
    results = [*right, *(make_result(f"mlx_lm/x{n}/scenario_0/float32/0") for n in range(400))]
    (small,) = small_matrices(results, material.inventory.scenarios)
    stroke = dict(small.strokes)["good"]
    assert max(int(width) for width in re.findall(r"h(\d+)\.8", stroke)) >= 399
    assert len(cells(stroke)) == len(results)


def test_a_matrix_of_few_families_has_all_names():
    scenarios = ("scenario_0", "scenario_1")
    few = results_by_hand.many(families=30, scenarios=2)
    (shown,) = shown_matrices(few.results, scenarios)
    assert shown == matrices(few.results, scenarios)[0]
    text = render_overview(few, Renderer())
    assert text.count('<th scope="col" class="up">') == 2
    assert "family_029</a></th>" in text
    many = results_by_hand.many(families=31, scenarios=2)
    assert isinstance(shown_matrices(many.results, scenarios)[0], SmallMatrix)
    assert 'class="up"' not in render_overview(many, Renderer())


def test_engines_and_versions_are_below_the_title():
    text = render_overview(Material(results_by_hand.few(), results_by_hand.inventory()), Renderer())
    below = text.partition("</h1>")[2].strip().splitlines()[0]
    assert below.startswith("<p>mlx_lm, mlx_vlm: device cpu (made by hand); mlx 0.32.4; mlx-lm")


def test_the_share_is_of_what_was_selected():
    right, wrong = make_result("e/a/one/d/0"), make_result("e/b/one/d/0", Verdict.DRIFT)
    assert share([right]) == "1 of 1 selected case (100.0 %) exact or tie as released"
    assert share([right, wrong], 2) == (
        "1 of 4 selected cases (25.0 %) exact or tie as released; 2 of them were not run"
    )
