"""The data of the matrix."""

import msgspec
import pytest
import results_by_hand

from conformance.core.inventory import Inventory
from conformance.core.verdict import Verdict
from conformance.report.pages.environment import Renderer, case_href, shown
from conformance.report.pages.matrix_page import matrix_data, render_matrix


def case_of(data, row, column, index=0):
    values = data["rows"][row]["cells"][column][index]
    return dict(zip(data["fields"], values, strict=False))


def test_columns_follow_the_ladder_and_unknown_ones_come_last():
    results = [
        results_by_hand.make_result(f"e/f/{name}/float32/0")
        for name in ("b", "mine", "a", "another")
    ]
    data = matrix_data(results, Inventory(scenarios=("a", "b", "c")))
    assert data["scenarios"] == ["a", "b", "another", "mine"]


def test_a_row_is_a_family_under_an_engine_and_dtype():
    data = matrix_data(results_by_hand.few(), results_by_hand.inventory())
    rows = [(row["family"], row["engine"], row["dtype"]) for row in data["rows"]]
    assert rows == sorted(rows)
    assert len(rows) == 7
    assert data["rows"][3]["caches"] == ("KVCache",)


def test_a_case_says_in_short_what_the_panel_shows():
    result = results_by_hand.make_result(verdict=Verdict.DIVERGED, known="some-defect")
    data = matrix_data([result], Inventory())
    found = case_of(data, 0, 0)
    assert data["verdicts"][found["verdict"]]["name"] == "diverged"
    assert found["difference"] == 0.0123
    assert found["known"] == "some-defect"
    assert found["what"] == "request 'b' differs at output token 3"
    assert found["page"] == case_href(result.case)


def test_an_exact_case_carries_no_words_and_no_page():
    data = matrix_data([results_by_hand.make_result()], Inventory())
    assert data["rows"][0]["cells"][0][0] == [0, 0, 1, 0.0123, 1e-05, 1230.0, 0.5]


def test_what_applies_but_was_not_run_is_distinguished_from_what_does_not_apply():
    names = ("e/f/a/float32/0", "e/f/b/float32/0", "e/g/c/float32/0")
    applicable = {"e": {"f": ("a", "b"), "g": ("a", "c")}}
    data = matrix_data(
        [results_by_hand.make_result(name) for name in names], Inventory(applicable=applicable)
    )
    assert data["scenarios"] == ["a", "b", "c"]
    assert [row["cells"][0] == 0 for row in data["rows"]] == [False, True]
    assert [row["cells"][1] is None for row in data["rows"]] == [False, True]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_is_left_out(value):
    result = results_by_hand.make_result(max_abs_diff=value)
    assert case_of(matrix_data([result], Inventory()), 0, 0)["difference"] is None


def test_the_data_in_the_page_is_json_that_ends_no_script():
    material = results_by_hand.hostile()
    text = render_matrix(material.results, material.inventory, Renderer())
    start = text.index('<script type="application/json" id="data">')
    inside = text[start:].partition(">")[2].partition("</script>")[0]
    data = msgspec.json.decode(inside)
    families = [row["family"] for row in data["rows"]]
    assert sorted(families) == sorted(map(shown, results_by_hand.HOSTILE))
    assert "<" not in inside
