"""The matrix in a browser: filters, search, sorting, addresses, the panel."""

import re

import pytest
import results_by_hand
from playwright.sync_api import expect

from conformance.report.pages.material import Material
from conformance.report.pages.site import write_site


def rows(page):
    """The visible rows: family and engine."""
    return page.eval_on_selector_all(
        "#matrix tbody tr:not([hidden])",
        "rows => rows.map(r => `${r.cells[1].textContent}/${r.cells[0].textContent}"
        "/${r.cells[2].textContent}`)",
    )


ALL = [
    "mlx_lm/gemma3/float32",
    "mlx_lm/llama/bfloat16",
    "mlx_lm/llama/float32",
    "mlx_lm/mamba/float32",
    "mlx_lm/qwen3/float32",
    "mlx_lm/qwen3_moe/float32",
    "mlx_vlm/llava/float32",
]


def test_every_row_and_cell_is_there(matrix, picture):
    page = matrix()
    assert sorted(rows(page)) == ALL
    texts = page.locator("#matrix td.v-diverged, #matrix td.v-drift, #matrix td.v-crash")
    assert texts.all_text_contents() == ["C!", "~", "X!"]
    assert page.locator("#status").text_content() == "7 of 7 rows, 28 cases"
    picture(page, "matrix-small")


def test_the_table_is_one_to_a_screen_reader(matrix):
    page = matrix()
    assert page.get_by_role("grid", name="Families by scenarios").count() == 1
    assert page.get_by_role("columnheader", name="ragged").count() == 1
    assert page.get_by_role("rowheader", name="qwen3", exact=True).count() == 1
    assert page.get_by_role("gridcell", name="diverged, not expected").count() == 1
    assert page.get_by_role("gridcell", name="tie").count() == 1


@pytest.mark.parametrize(
    ("field", "value", "left"),
    [
        ("Engine", "mlx_vlm", ["mlx_vlm/llava/float32"]),
        ("Dtype", "bfloat16", ["mlx_lm/llama/bfloat16"]),
        ("Cache kind", "ArraysCache", ["mlx_lm/mamba/float32"]),
        ("Modality", "image", ["mlx_vlm/llava/float32"]),
        ("Verdict", "tie", ["mlx_lm/gemma3/float32"]),
        ("Verdict", "unexpected", ["mlx_vlm/llava/float32", "mlx_lm/qwen3/float32"]),
        ("Verdict", "bad", [name for name in ALL if re.search("llava|mamba|qwen3/", name)]),
    ],
)
def test_a_choice_leaves_its_rows(matrix, field, value, left):
    page = matrix()
    page.get_by_label(field, exact=True).select_option(value)
    assert sorted(rows(page)) == sorted(left)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("qwen3*", ["mlx_lm/qwen3/float32", "mlx_lm/qwen3_moe/float32"]),
        ("QWEN3", ["mlx_lm/qwen3/float32"]),
        ("l?ama", ["mlx_lm/llama/bfloat16", "mlx_lm/llama/float32"]),
        ("ama", []),
        ("(", []),
    ],
)
def test_a_family_is_asked_for_as_on_the_command_line(matrix, text, left):
    page = matrix()
    page.get_by_label("Family").fill(text)
    assert sorted(rows(page)) == left


@pytest.mark.parametrize(
    ("text", "left", "cells"),
    [
        ("ssm-padding", ["mlx_lm/mamba/float32"], 1),
        (
            "output token 3",
            ["mlx_lm/mamba/float32", "mlx_lm/qwen3/float32", "mlx_vlm/llava/float32"],
            4,
        ),
        ("rotating gemma", ["mlx_lm/gemma3/float32"], 4),
        ("llama bfloat16 staggered", ["mlx_lm/llama/bfloat16"], 1),
        ("no such thing", [], 0),
    ],
)
def test_the_search_looks_into_names_defects_and_findings(matrix, text, left, cells):
    page = matrix()
    page.get_by_label("Search").fill(text)
    assert sorted(rows(page)) == left
    assert page.locator("#status").text_content() == f"{len(left)} of 7 rows, {cells} cases"


def test_a_scenario_leaves_its_column(matrix):
    page = matrix()
    page.get_by_label("Scenario", exact=True).select_option("ragged")
    assert page.locator("#matrix thead th.scenario:visible").all_text_contents() == ["ragged"]
    assert page.locator("#matrix tbody tr").first.locator("td:visible").count() == 4


def test_cells_that_were_not_asked_for_are_faint(matrix):
    page = matrix("verdict=diverged")
    row = page.locator("#matrix tbody tr:not([hidden])")
    assert row.locator("td.faint").count() == 3
    assert row.locator("td.v-diverged:not(.faint)").count() == 1


def test_filters_are_cleared(matrix):
    page = matrix("engine=mlx_vlm&q=llava")
    assert len(rows(page)) == 1
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("#matrix tbody tr[hidden]")).to_have_count(0)
    assert page.evaluate("location.hash") == ""


def test_sorting_by_a_column_puts_its_worst_first(matrix):
    page = matrix()
    page.get_by_role("button", name="ragged").click()
    assert rows(page)[:2] == ["mlx_lm/qwen3/float32", "mlx_lm/mamba/float32"]
    header = page.get_by_role("columnheader", name="ragged")
    assert header.get_attribute("aria-sort") == "descending"
    page.get_by_role("button", name="family").click()
    assert rows(page)[0] == "mlx_lm/gemma3/float32"
    assert header.get_attribute("aria-sort") is None


def test_an_address_brings_back_what_was_shown(matrix):
    page = matrix()
    page.get_by_label("Engine").select_option("mlx_lm")
    page.get_by_label("Search").fill("qwen")
    page.get_by_role("button", name="staggered").click()
    page.get_by_role("gridcell", name="diverged, not expected").click()
    fragment = page.evaluate("location.hash").removeprefix("#")
    before = rows(page)
    again = matrix(fragment)
    assert rows(again) == before == ["mlx_lm/qwen3/float32", "mlx_lm/qwen3_moe/float32"]
    assert again.get_by_label("Engine").input_value() == "mlx_lm"
    assert again.get_by_role("dialog").locator("h2").text_content() == "qwen3 \u00b7 ragged"


def test_an_address_opens_its_case(matrix, picture):
    page = matrix("case=mlx_vlm%2Fllava%2Fstaggered%2Ffloat32%2F0")
    panel = page.get_by_role("dialog")
    assert "C crash: an exception" in panel.text_content()
    assert panel.locator("code").text_content() == (
        "conformance show mlx_vlm/llava/staggered/float32/0"
    )
    assert page.locator("#matrix td[aria-selected]").text_content() == "C!"
    picture(page, "matrix-panel")


def test_an_address_that_is_typed_in_is_followed(matrix):
    page = matrix()
    page.evaluate("location.hash = '#engine=mlx_vlm'")
    page.wait_for_function(
        "document.querySelectorAll('#matrix tbody tr:not([hidden])').length === 1"
    )
    assert rows(page) == ["mlx_vlm/llava/float32"]


def test_a_case_that_is_not_there_is_reported(matrix):
    page = matrix("case=mlx_lm/none/ragged/float32/0&engine=nonsense")
    assert page.locator("#status").text_content() == (
        "There is no case mlx_lm/none/ragged/float32/0 in this report."
    )
    assert len(rows(page)) == 7


def test_a_case_leads_to_its_page_and_an_exact_one_says_all_at_once(matrix):
    page = matrix("case=mlx_lm/llama/ragged/float32/0")
    assert "exact: all tokens equal" in page.get_by_role("dialog").text_content()
    assert page.get_by_role("dialog").get_by_role("link").count() == 0
    page = matrix("case=mlx_lm/qwen3/ragged/float32/0")
    page.get_by_role("dialog").get_by_role("link").click()
    page.wait_for_url("**/cases/mlx_lm-qwen3-ragged-float32-0-*.html")
    assert "mlx_lm/qwen3/ragged/float32/0" in page.locator("main").text_content()


def test_the_rerun_command_can_be_taken(matrix):
    page = matrix("case=mlx_lm/qwen3/ragged/float32/0")
    page.get_by_role("button", name="Copy").click()
    page.wait_for_selector("#panel .command button:text-matches('Copied|Selected')")


def test_head_and_first_column_stay(new_page, large):
    page = new_page(900, 600)
    page.goto(f"{large}/matrix.html")
    page.wait_for_selector("html[data-ready]")
    page.evaluate("document.getElementById('scroller').scrollTo(500, 4000)")
    box = page.locator("#scroller").bounding_box()
    corner = page.locator("#matrix thead .corner").bounding_box()
    first = page.locator("#matrix tbody tr").nth(200).locator("th").bounding_box()
    assert abs(corner["x"] - box["x"]) < 4
    assert abs(corner["y"] - box["y"]) < 4
    assert abs(first["x"] - box["x"]) < 4


def test_what_was_not_run_is_shown_and_can_be_asked_for(page, tmp_path):
    results = [r for r in results_by_hand.few() if r.case != "mlx_lm/qwen3/staggered/float32/0"]
    write_site(tmp_path / "report", Material(tuple(results), results_by_hand.inventory()))
    page.goto(f"{(tmp_path / 'report').as_uri()}/matrix.html#verdict=missing")
    page.wait_for_selector("html[data-ready]")
    assert rows(page) == ["mlx_lm/qwen3/float32"]
    assert page.get_by_role("gridcell", name="not run").text_content() == "?"
    page.get_by_label("Verdict", exact=True).select_option("")
    assert page.locator("#status").text_content() == "7 of 7 rows, 27 cases"
    assert page.locator("#matrix td.faint").count() == 0
