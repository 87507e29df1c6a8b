"""A case's page: its drawings, its tables, its copy buttons."""

import pytest
from html_pictures import CASE

from conformance.report.pages.environment import case_href

SIZES = """() => [...document.querySelectorAll("svg[role=img]")].map((svg) => {
  const all = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll("text")].map((t) => t.getBoundingClientRect());
  const outside = texts.filter((t) => t.left < all.left - 1 || t.right > all.right + 1
    || t.top < all.top - 1 || t.bottom > all.bottom + 1);
  return [all.width > 100 && all.height > 50, outside.length];
})"""


@pytest.fixture
def case(charted):
    return f"{charted}/{case_href(CASE)}"


def test_it_shows_what_is_wrong(page, case):
    page.goto(case)
    assert CASE in page.locator("h1").inner_text()
    assert page.locator(".message dt").all_inner_texts() == [
        *("what", "where", "expected", "cause", "rerun")
    ]
    assert page.locator(".tokens .first").inner_text() == "8"
    assert page.locator("svg .mark").count() == 2


def test_every_drawing_has_a_size_and_its_texts_are_inside(page, case):
    page.goto(case)
    assert page.evaluate(SIZES) == [[True, 0]] * 4


def test_drawings_are_named_for_those_who_do_not_see_them(page, case):
    page.goto(case)
    for name in (
        "Requests over the steps of the engine",
        "Logprob difference at each output token",
        "Error along the layers",
        "Bytes of live caches after each step",
    ):
        assert page.get_by_role("img", name=name).count() == 1
    page.locator("summary", has_text="The numbers").click()
    assert page.get_by_role("cell", name="not finite").first.is_visible()


def test_stages_have_colours_of_their_own(new_page, case):
    for scheme in ("light", "dark"):
        page = new_page(scheme=scheme)
        page.goto(case)
        fill = "e => getComputedStyle(e).fill"
        cells = [f".timeline g > rect.t-{s}" for s in ("queued", "prefill", "decode", "removed")]
        assert len({page.locator(cell).first.evaluate(fill) for cell in cells}) == len(cells)


def test_the_script_is_copied(page, case):
    page.goto(case)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    button = page.get_by_role("button", name="Copy script")
    button.click()
    page.get_by_role("button", name="Copied", exact=True).wait_for()
    assert page.get_by_role("status").inner_text() == "Copied"
    assert page.evaluate("navigator.clipboard.readText()") == "print('of the batch')\n"


def test_the_script_is_copied_where_the_clipboard_is_refused(page, case):
    page.add_init_script("delete Navigator.prototype.clipboard")
    page.goto(case)
    page.get_by_role("button", name="Copy script").click()
    page.get_by_role("button", name="Copied", exact=True).wait_for()
    assert "of the batch" in page.evaluate("getSelection().toString()")


def test_without_javascript_there_is_no_button_and_all_else(browser, case):
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(case)
    assert page.get_by_role("button").count() == 0
    assert page.locator("svg[role=img]").count() == 4
    context.close()


def test_a_case_with_nothing_to_draw_has_commands_instead(page, charted, picture):
    page.goto(f"{charted}/{case_href('mlx_lm/mamba/ragged/float32/0')}")
    assert page.locator("svg[role=img]").count() == 0
    text = page.locator("main").inner_text()
    assert "conformance explain mlx_lm/mamba/ragged/float32/0" in text
    assert "conformance repro mlx_lm/mamba/ragged/float32/0" in text
    picture(page, "case-bare", full_page=True)


def test_it_leads_to_its_cell_in_the_matrix_and_back(page, case):
    page.goto(case)
    page.get_by_role("link", name="this cell in the matrix").click()
    page.wait_for_selector("html[data-ready]")
    panel = page.get_by_role("dialog")
    panel.wait_for()
    assert CASE in panel.inner_text()
    panel.get_by_role("link").first.click()
    page.wait_for_url("**/cases/*.html")
    assert CASE in page.locator("h1").inner_text()


def test_the_keyboard_reaches_commands_and_wide_drawings(page, case):
    page.goto(case)
    reached = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.ariaLabel"))
    assert {"command", "script", "Timeline", "Tokens side by side"} <= reached
