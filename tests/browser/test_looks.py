"""Pages in both themes, wide and narrow: enough contrast; no text clipped, covered or outside."""

import html_pictures
import pytest
from html_looks import CONTRAST, UNREADABLE

from conformance.report.pages.environment import case_href

CASE = "mlx_vlm/llava/staggered/float32/0"
PAGES = {
    "report": (
        *("index.html", "defects.html", "matrix.html", f"matrix.html#case={CASE}"),
        case_href(CASE),
    ),
    "charted": ("faults.html", "comparison.html", case_href(html_pictures.CASE)),
    "status": ("index.html", "engine-mlx_lm.html", "engine-mlx_vlm.html"),
}


@pytest.fixture
def open_at(new_page):
    """Open a page, by default in a narrow window."""

    def call(address, width=400, scheme="light"):
        page = new_page(width, 800, scheme)
        page.goto(address)
        if "matrix.html" in address:
            page.wait_for_selector("html[data-ready]")
        return page

    return call


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (400, "light")])
@pytest.mark.parametrize(
    ("site", "name"), [(site, name) for site, names in PAGES.items() for name in names]
)
def test_every_text_can_be_read(request, open_at, picture, site, name, width, scheme):
    page = open_at(f"{request.getfixturevalue(site)}/{name}", width, scheme)
    assert page.locator("nav [aria-current=page]").count() == (not name.startswith("cases/"))
    assert page.evaluate(CONTRAST) == []
    if site == "charted":  # tables of the numbers are folded away
        page.eval_on_selector_all("details", "all => all.forEach((one) => { one.open = true })")
    assert page.evaluate(UNREADABLE) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    picture(page, f"{site}-{PAGES[site].index(name)}-{width}-{scheme}", full_page=True)


@pytest.mark.parametrize("name", ["index.html", "matrix.html"])
def test_every_text_of_a_large_report_can_be_read(open_at, large, name):
    assert open_at(f"{large}/{name}").evaluate(UNREADABLE) == []


PANEL = "#panel { position: fixed !important; inset: auto 0 0; height: 60vh }"
PLANTED = {
    ".totals td.text { min-width: 30rem }": "outside: ",
    ".totals { overflow: hidden } .totals table { width: 30rem }": "clipped: DIV wide totals",
    "h1 { position: relative; top: 4rem }": "overlaps: ",
    "body > header { position: fixed; bottom: 0; height: 60vh; width: 100% }": "covered: ",
    PANEL: "covered: ",
    ".quiet { color: #bbb; }": "quiet",
}


@pytest.mark.parametrize("style", PLANTED)
def test_what_cannot_be_read_would_be_seen(open_at, report, style):
    page = open_at(f"{report}/" + (f"matrix.html#case={CASE}" if style == PANEL else "index.html"))
    page.add_style_tag(content=style)
    found = page.evaluate(CONTRAST if PLANTED[style] == "quiet" else UNREADABLE)
    assert any(PLANTED[style] in text for text in found)


def test_the_panel_is_in_sight_when_a_case_is_opened(open_at, large):
    page = open_at(f"{large}/matrix.html")
    page.locator("#matrix td.v-crash").first.click()
    box = page.locator("#panel h2").bounding_box()
    assert 0 <= box["y"] < 800


@pytest.mark.parametrize("name", ["index", "engine-mlx_lm"])
def test_a_large_status_site_does_not_scroll_sideways(open_at, large_status, name):
    page = open_at(f"{large_status}/{name}.html")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    box = page.locator(".grid tbody th").first.bounding_box()
    assert box["width"] >= 100, "its names would be broken after each letter"


def test_a_wide_table_would_be_seen(open_at, status):
    page = open_at(f"{status}/index.html")
    page.add_style_tag(content=".grid { max-width: none } .grid table { width: 60rem }")
    assert page.evaluate("document.documentElement.scrollWidth") > 400


def test_the_system_decides_between_themes_until_the_button_does(new_page, report):
    def ground():
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    page = new_page(scheme="dark")
    page.goto(f"{report}/index.html")
    assert ground() == "rgb(14, 17, 22)"
    page.get_by_role("button", name="Light theme").click()
    assert ground() == "rgb(255, 255, 255)"
    page.get_by_role("link", name="Matrix").click()
    page.wait_for_selector("html[data-ready]")
    assert ground() == "rgb(255, 255, 255)"
    assert page.get_by_role("button", name="Dark theme").is_visible()
