"""The first page in a browser."""

import itertools

import pytest
import results_by_hand
from results_by_hand import LONG

from conformance.report.pages import overview
from conformance.report.pages.site import write_site


def test_the_overview_says_what_it_came_to(page, report, picture):
    page.goto(f"{report}/index.html")
    assert page.locator(".headline").text_content() == "2 of 28 cases not as expected"
    row = page.get_by_role("row", name="diverged")
    assert row.get_by_role("cell").all_text_contents()[:3] == ["1", "3.6 %", "1"]
    lane = page.get_by_role("row", name="mlx_lm float32, 0")
    assert lane.get_by_role("cell").all_text_contents() == [
        "float32, 0", "5 of 6", "30", "10", "17", "2", "1", "1", "56.7 %"
    ]  # fmt: skip
    assert "new_one" in page.locator("main").text_content()
    picture(page, "overview", full_page=True)


def test_a_total_leads_to_its_cells(page, report):
    page.goto(f"{report}/index.html")
    page.get_by_role("link", name="diverged", exact=True).click()
    page.wait_for_selector("html[data-ready]")
    assert page.locator("#status").text_content() == "1 of 7 rows, 1 cases"


def test_a_known_defect_leads_to_its_words_and_from_there_to_its_cells(page, report):
    page.goto(f"{report}/index.html")
    page.get_by_role("link", name=LONG).first.click()
    assert page.url.endswith(f"/defects.html#{LONG}")
    page.locator("section", has=page.locator(f"#{LONG}")).get_by_role("link", name=LONG).click()
    page.wait_for_selector("html[data-ready]")
    assert page.locator("#status").text_content() == "1 of 7 rows, 1 cases"


def test_it_is_read_by_its_landmarks_and_headings(page, report):
    page.goto(f"{report}/index.html")
    for role in ("banner", "navigation", "main"):
        assert page.get_by_role(role).count() == 1
    levels = page.eval_on_selector_all(
        "h1, h2, h3", "found => found.map((h) => Number(h.tagName[1]))"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


@pytest.fixture
def pictured(tmp_path, monkeypatch):
    """The address of the small report as if it had many families."""
    monkeypatch.setattr(overview, "_LABELLED", 0)
    write_site(tmp_path / "report", results_by_hand.everything())
    return (tmp_path / "report").as_uri()


def test_the_matrix_of_few_families_has_names_and_leads_to_the_large_one(page, report, picture):
    page.goto(f"{report}/index.html")
    found = page.locator(".labelled").first
    assert found.locator("thead th").all_inner_texts() == [
        "family",
        "repeat",
        "ragged",
        "staggered",
        "quantized",
    ]
    row = found.locator("tbody tr", has_text="qwen3").first
    assert row.locator("td").all_inner_texts() == [".", "X!", ".", "."]
    picture(page, "overview-labelled")
    row.get_by_role("link").click()
    page.wait_for_selector("html[data-ready]")
    assert page.locator("#status").text_content() == "1 of 7 rows, 4 cases"


def test_the_small_matrix_has_a_cell_for_each_and_leads_to_the_large_one(page, pictured):
    page.goto(f"{pictured}/index.html")
    pictures = page.locator(".small")
    assert pictures.locator("figcaption").all_text_contents() == [
        "mlx_lm float32: 5 families, 4 scenarios",
        "mlx_lm bfloat16: 1 family, 4 scenarios",
        "mlx_vlm float32: 1 family, 4 scenarios",
    ]
    assert pictures.locator("a title").all_text_contents()[3] == "qwen3: 1 not expected, 3 exact"
    pictures.first.locator("svg a").nth(3).click()
    page.wait_for_selector("html[data-ready]")
    assert page.locator("#status").text_content() == "1 of 7 rows, 4 cases"


def test_the_small_matrix_has_the_colours_of_its_key(page, pictured):
    page.goto(f"{pictured}/index.html")
    colour = "paths => paths.map((path) => getComputedStyle(path).stroke)"
    key = page.eval_on_selector_all(".keys path", colour)
    assert len(set(key)) == 6
    names = page.locator(".keys").inner_text().split("\n")
    mended = names.index("known defect, right once mended")  # no case of the report
    assert names[mended + 1] == "known defect"
    del key[mended]
    assert page.eval_on_selector_all(".small:first-child path", colour) == key


def test_date_command_and_the_older_run_are_at_the_top(page, report):
    page.goto(f"{report}/index.html")
    assert page.locator("dl.run").first.inner_text().split("\n") == [
        "2026-11-22 14:10 UTC",
        "conformance run --json today.jsonl",
    ]
    assert page.locator("dl.run").nth(1).inner_text().split("\n")[1] == (
        "conformance run --json yesterday.jsonl: 25 cases"
    )
    page.get_by_role("link", name="What changed").click()
    page.wait_for_url("**/comparison.html")
