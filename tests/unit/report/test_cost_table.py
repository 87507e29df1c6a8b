"""The table of costs, and counts that moved between two runs, come from results alone."""

import pytest
from results_by_hand import make_result

from conformance.core.contracts import Cost, contracts
from conformance.core.verdict import ScheduleResult, Verdict
from conformance.report.comparison import Kind, compare
from conformance.report.cost_table import BEGIN, END, cost_table, moved_costs, with_costs

CASE = "mlx_lm/llama/cost_positions/float32/0"


def counted(*counts, case=CASE, schedule="twentieth", limit=1.25):
    """A result with such counts by contract."""
    costs = tuple(Cost(name, count, limit) for name, count in counts)
    verdict = Verdict.EXACT if all(cost.kept for cost in costs) else Verdict.COST
    return make_result(case, verdict, schedules=(ScheduleResult(schedule, verdict, costs=costs),))


def cells(*results):
    found = cost_table(results)
    return {
        (name, engine): cell
        for name, _, row in found.rows
        for engine, cell in zip(found.engines, row, strict=True)
    }


def test_the_worst_count_of_an_engine_is_shown():
    other = "mlx_vlm/llama/cost_positions/float32/0"
    found = cells(
        counted(("positions", 1.2)),
        counted(("positions", 1.24), case="mlx_lm/mamba2/cost_positions/float32/0"),
        counted(("positions", 1.98), case=other),
    )
    assert found["positions", "mlx_lm"].cost.count == 1.24
    assert found["positions", "mlx_vlm"].case == other
    assert found["rows", "mlx_lm"] is None
    assert {name for name, _ in found} == set(contracts())


def test_markdown_names_the_case_that_breaks_a_contract():
    found = cost_table([counted(("positions", 1.2), ("rows", 3.5))])
    text = with_costs("", found)
    assert "| 1.2 |" in text
    assert "| **3.5** |" in text
    assert "| not counted |" in text
    assert f"{CASE} twentieth: rows 3.5, at most 1.25" in text


def test_the_table_goes_between_its_marks_and_nothing_else_changes():
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    text = with_costs(page, cost_table([counted(("positions", 1.2))]))
    assert text.startswith(f"before\n{BEGIN}\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ((("positions", 1.2),), (("positions", 1.2),), ()),
        ((("positions", 1.98),), (("positions", 1.2),), ("positions of twentieth: 1.98 -> 1.2",)),
        ((("rows", 1.0),), (("positions", 1.2),), ()),
    ],
)
def test_moved_counts(before, after, found):
    assert moved_costs(counted(*before), counted(*after)) == found


def test_a_count_that_moved_is_a_change_though_the_verdict_is_the_same():
    before, after = counted(("positions", 1.1)), counted(("positions", 1.2))
    (change,) = compare([before], [after]).changes
    assert change.kind is Kind.COST
    assert change.text == "positions of twentieth: 1.1 -> 1.2"
    assert not compare([before], [after]).regressed


def test_a_contract_that_is_broken_now_is_a_regression():
    found = compare([counted(("positions", 1.1))], [counted(("positions", 1.9))])
    assert [change.kind for change in found.changes] == [Kind.FAILING, Kind.COST]
    assert found.regressed
