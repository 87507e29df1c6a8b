"""Names of models, schedules and defects that try to be more than text."""

import shutil
from pathlib import Path
from urllib.parse import urlparse

import results_by_hand

from conformance.report.pages.environment import shown


def test_hostile_names_are_only_text(page, hostile, picture):
    page.goto(f"{hostile}/index.html")
    assert page.evaluate("window.pwned") is None
    page.goto(f"{hostile}/matrix.html")
    page.wait_for_selector("html[data-ready]")
    names = page.locator("#matrix tbody th").all_text_contents()
    assert sorted(names) == sorted(map(shown, results_by_hand.HOSTILE))
    assert "\\u202egnp.exe\\u2066 \\ud800" in names  # nothing turns the text around it
    for row in page.locator("#matrix tbody tr").all():
        row.locator("td[class^=v-]").first.click()
        row.hover()
    assert page.locator("img").count() == 0
    assert page.evaluate("window.pwned") is None
    picture(page, "matrix-hostile")


def test_their_case_pages_are_only_text(page, hostile):
    page.goto(f"{hostile}/index.html")
    links = [a.get_attribute("href") for a in page.locator(".cases a").all()]
    assert len(links) == len(results_by_hand.HOSTILE)
    for link in links:
        page.goto(f"{hostile}/{link}")
        page.wait_for_load_state()
        assert page.evaluate("window.pwned") is None, link
        assert page.locator("img, main script:not([type='application/json'])").count() == 0


def test_no_link_runs_a_script(page, hostile):
    for name in ("index", "matrix"):
        page.goto(f"{hostile}/{name}.html")
        # In a picture the address of a link is an object.
        found = "links => links.map(a => new URL(a.href.baseVal ?? a.href, location).protocol)"
        hrefs = page.eval_on_selector_all("a", found)
        assert set(hrefs) == {"file:"}


def test_even_a_text_that_were_not_escaped_would_not_run(browser, report, tmp_path):
    folder = Path(urlparse(report).path)
    shutil.copytree(folder, tmp_path / "report")
    page_file = tmp_path / "report" / "index.html"
    hole = "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 2'>"
    page_file.write_text(page_file.read_text().replace("<h1>", f"{hole}<h1>"))
    page = browser.new_page()
    page.goto(page_file.as_uri())
    assert page.locator("main img").count() == 1
    assert page.evaluate("window.pwned") is None
    assert page.get_by_role("button", name="Dark theme").is_visible()  # our own scripts do run
    page.close()
