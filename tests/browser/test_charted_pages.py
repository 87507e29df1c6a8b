"""The faults and a comparison."""

import pytest
from html_pictures import CASE, hostile_charted
from results_by_hand import HOSTILE

from conformance.report.pages.environment import case_slug
from conformance.report.pages.site import write_site

HOVER = """() => document.querySelectorAll("*").forEach(
  (e) => e.dispatchEvent(new MouseEvent("mouseover")))"""


@pytest.mark.parametrize(
    ("choice", "shown"),
    [
        ("were tried", {"A1.mask", "A2.idle", "B4.offset"}),
        ("were killed somewhere", {"B4.offset"}),
        ("survived somewhere", {"A1.mask"}),
        ("are hidden somewhere", {"A1.mask"}),
        ("are applicable nowhere", {"A2.idle"}),
    ],
)
def test_faults_are_filtered_without_a_script(browser, charted, choice, shown):
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(f"{charted}/faults.html")
    page.get_by_label(choice).check()
    rows = page.locator(".faults tbody tr:not(.class):visible th").all_inner_texts()
    assert set(rows) == shown
    context.close()


def test_a_class_leads_to_its_faults(page, charted):
    page.goto(f"{charted}/faults.html")
    page.get_by_role("link", name="rope offset").click()
    assert page.locator("tbody:target th[scope=row]").inner_text() == "B4.offset"


def test_a_changed_cell_leads_to_its_case(page, charted):
    page.goto(f"{charted}/comparison.html")
    page.get_by_role("link", name="X!").click()
    page.wait_for_url(f"**/{case_slug(CASE)}.html")
    assert CASE in page.locator("h1").inner_text()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_are_only_text(page, tmp_path, name):
    folder = tmp_path / "report"
    write_site(folder, hostile_charted(name))
    there = [folder / f"{n}.html" for n in ("faults", "comparison")]
    for path in (*there, *(folder / "cases").iterdir()):
        page.goto(path.as_uri())
        page.evaluate(HOVER)
        assert page.evaluate("window.pwned") is None
        assert page.locator("img, main script").count() == 0
        hrefs = page.eval_on_selector_all("a", "links => links.map(a => a.protocol)")
        assert set(hrefs) == {"file:"}
