"""Light and dark, and enough contrast in both."""

import pytest
from html_looks import CONTRAST


def ground(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["index", "matrix"])
def test_every_text_has_contrast(new_page, report, picture, name, scheme):
    page = new_page(scheme=scheme)
    page.goto(f"{report}/{name}.html")
    assert page.evaluate(CONTRAST) == []
    picture(page, f"{name}-{scheme}", full_page=True)


def test_poor_contrast_would_be_seen(page, report):
    page.goto(f"{report}/index.html")
    page.add_style_tag(content=".quiet { color: #bbb; }")
    assert any("quiet" in text for text in page.evaluate(CONTRAST))


def test_the_system_decides_until_the_button_does(new_page, report):
    page = new_page(scheme="dark")
    page.goto(f"{report}/index.html")
    assert ground(page) == "rgb(14, 17, 22)"
    page.get_by_role("button", name="Light theme").click()
    assert ground(page) == "rgb(255, 255, 255)"
    page.get_by_role("link", name="Matrix").click()
    page.wait_for_selector("html[data-ready]")
    assert ground(page) == "rgb(255, 255, 255)"
    assert page.get_by_role("button", name="Dark theme").is_visible()
