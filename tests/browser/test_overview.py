"""The first page in a browser."""

import itertools


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


def test_a_known_defect_leads_to_its_cells(page, report):
    page.goto(f"{report}/index.html")
    page.get_by_role("link", name="mask-of-length").click()
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


def test_a_narrow_window_needs_no_scrolling_sideways(new_page, report, picture):
    for name in ("index", "matrix"):
        page = new_page(400, 800)
        page.goto(f"{report}/{name}.html")
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        picture(page, f"{name}-narrow")
