"""Pages in a window of 400 pixels: no text is clipped, covered or over another."""

import html_pictures
import pytest
from html_looks import UNREADABLE

from conformance.report.pages.environment import case_href

CASE = "mlx_vlm/llava/staggered/float32/0"
PAGES = ("index.html", "defects.html", "matrix.html", f"matrix.html#case={CASE}", case_href(CASE))


@pytest.fixture
def narrow(new_page):
    """Open a page in a narrow window."""

    def open_at(address, scheme="light"):
        page = new_page(400, 800, scheme)
        page.goto(address)
        if "matrix.html" in address:
            page.wait_for_selector("html[data-ready]")
        return page

    return open_at


@pytest.mark.parametrize("name", PAGES)
def test_every_text_of_a_report_can_be_read(narrow, report, picture, name):
    page = narrow(f"{report}/{name}")
    assert page.evaluate(UNREADABLE) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    picture(page, f"narrow-{PAGES.index(name)}", full_page=True)


def test_every_text_of_a_page_with_charts_can_be_read(narrow, charted, picture):
    page = narrow(f"{charted}/{case_href(html_pictures.CASE)}")
    page.eval_on_selector_all("details", "all => all.forEach((one) => { one.open = true })")
    assert page.evaluate(UNREADABLE) == []
    picture(page, "narrow-case", full_page=True)


@pytest.mark.parametrize("name", ["index.html", "matrix.html"])
def test_every_text_of_a_large_report_can_be_read(narrow, large, name):
    page = narrow(f"{large}/{name}")
    assert page.evaluate(UNREADABLE) == []


PLANTED = {
    ".totals td.text { min-width: 30rem }": "outside: ",
    ".totals { overflow: hidden } .totals table { width: 30rem }": "clipped: DIV wide totals",
    "h1 { position: relative; top: 4rem }": "overlaps: ",
    "body > header { position: fixed; bottom: 0; height: 60vh; width: 100% }": "covered: ",
}


@pytest.mark.parametrize("style", PLANTED)
def test_what_cannot_be_read_would_be_seen(narrow, report, style):
    page = narrow(f"{report}/index.html")
    page.add_style_tag(content=style)
    assert any(text.startswith(PLANTED[style]) for text in page.evaluate(UNREADABLE))


def test_a_panel_over_the_page_would_be_seen(narrow, report):
    page = narrow(f"{report}/matrix.html#case={CASE}")
    page.add_style_tag(
        content="#panel { position: fixed !important; inset: auto 0 0; height: 60vh }"
    )
    assert any(text.startswith("covered: ") for text in page.evaluate(UNREADABLE))


def test_the_panel_is_in_sight_when_a_case_is_opened(narrow, large):
    page = narrow(f"{large}/matrix.html")
    page.locator("#matrix td.v-crash").first.click()
    box = page.locator("#panel h2").bounding_box()
    assert 0 <= box["y"] < 800
