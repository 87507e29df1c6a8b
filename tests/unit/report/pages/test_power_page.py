"""The kill matrix as a page."""

from html_pictures import make_trial, make_trials

from conformance.report.pages.environment import Renderer
from conformance.report.pages.power_page import matrices, render_power
from conformance.report.trials import Kill, Outcome


def render(trials):
    return render_power(trials, Renderer())


def test_each_fault_has_a_row_and_each_family_a_column():
    (matrix,) = matrices(make_trials())
    assert matrix.families == ("llama", "mamba")
    rows = {
        row.fault: [cell.mark if cell else None for cell in row.cells]
        for group in matrix.groups
        for row in group.rows
    }
    assert rows == {"A1.mask": ["S", "h"], "A2.idle": ["", None], "B4.offset": ["~", ""]}


def test_totals_are_by_class_and_what_could_not_be_killed_is_no_denominator():
    (matrix,) = matrices(make_trials())
    assert {g.name: (g.counts, g.share) for g in (*matrix.groups, matrix.all)} == {
        "masks": ((0, 1, 1, 1), 0.0),
        "rope offset": ((1, 0, 0, 1), 1.0),
        "all": ((1, 1, 1, 2), 0.5),
    }


def test_a_class_that_is_applicable_nowhere_has_no_share():
    (matrix,) = matrices([make_trial(outcome=Outcome.NOT_APPLICABLE)])
    assert matrix.all.share is None
    assert "-</td>" in render([make_trial(outcome=Outcome.NOT_APPLICABLE)])


def test_a_filter_knows_what_became_of_a_fault():
    (matrix,) = matrices(make_trials())
    known = {row.fault: row.outcomes for group in matrix.groups for row in group.rows}
    assert known == {
        "A1.mask": ("hidden", "survived"),
        "A2.idle": ("idle", "na"),
        "B4.offset": ("killed", "na"),
    }


def test_a_cell_says_who_caught_it():
    text = render(make_trials())
    assert 'title="ragged: drift (forced, 123 times the noise)"' in text
    assert "A1.mask in mlx_lm/llama float32: tried ragged" in text
    assert "wrong too" in text


def test_what_is_caught_by_its_cost_has_the_glyph_of_that_verdict():
    trial = make_trial(kills=(Kill("wide", "cost", ("cost",)),))
    (matrix,) = matrices([trial])
    assert matrix.groups[0].rows[0].cells[0].mark == "$"
    assert "$ cost" in render([trial])
