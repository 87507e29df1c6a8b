"""A comparison of two runs as a page."""

import pytest
from results_by_hand import make_result

from conformance.core.errors import ResultError
from conformance.core.verdict import Verdict
from conformance.report.comparison import compare
from conformance.report.pages.comparison_page import grids, render_comparison
from conformance.report.pages.environment import Renderer, case_href

WORSE, BETTER, GONE, NEW = (f"mlx_lm/llama/{name}/float32/0" for name in "wbgn")
BEFORE = (make_result(WORSE), make_result(BETTER, Verdict.CRASH), make_result(GONE))
AFTER = (
    make_result(WORSE, Verdict.DIVERGED, versions={"mlx": "0.40"}),
    make_result(BETTER, noise=1e-3),
    make_result(NEW),
)


def render(before=BEFORE, after=AFTER):
    return render_comparison(before, after, Renderer())


def test_changed_cells_are_a_grid():
    (grid,) = grids(compare(BEFORE, AFTER))
    assert (grid.engine, grid.dtype, grid.scenarios) == ("mlx_lm", "float32", ("b", "w"))
    ((family, cells),) = grid.rows
    assert family == "llama"
    assert [(c.before.verdict, c.after.verdict) for c in cells] == [
        (Verdict.CRASH, Verdict.EXACT),
        (Verdict.EXACT, Verdict.DIVERGED),
    ]


def test_a_cell_of_several_seeds_shows_the_worst():
    seeds = [f"mlx_lm/llama/w/float32/{seed}" for seed in (0, 1)]
    before = (make_result(seeds[0], Verdict.CRASH), make_result(seeds[1]))
    after = (make_result(seeds[0]), make_result(seeds[1], Verdict.DRIFT))
    ((_, (cell,)),) = grids(compare(before, after))[0].rows
    assert cell.after.verdict is Verdict.DRIFT


def test_the_page_shows_each_change_and_leads_to_pages_that_there_are():
    text = render()
    for words in ("newly failing", "lost coverage", "Fixed (1)", "New coverage (1)", "0.40"):
        assert words in text
    assert "Something is worse" in text
    assert case_href(WORSE) in text
    assert case_href(BETTER) not in text
    assert case_href(GONE) not in text


def test_nothing_changed():
    text = render(BEFORE, BEFORE)
    assert "Nothing is worse" in text
    assert "No case differs" in text


def test_an_empty_run_is_reported():
    with pytest.raises(ResultError, match="the first file has no results"):
        render((), AFTER)
