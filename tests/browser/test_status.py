"""The status site: in wide and in narrow windows, in both themes, with scripts and without."""

import pytest
import results_by_hand
from html_looks import CONTRAST, UNREADABLE

from conformance.report.pages.status_site import write_status

PAGES = ("index", "engine-mlx_lm", "engine-mlx_vlm")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The address of a small site, one engine of which has three releases."""
    folder = tmp_path_factory.mktemp("status") / "site"
    write_status(folder, results_by_hand.over_releases())
    return folder.as_uri()


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Of one with 400 families, and a family and a release with long names."""
    folder = tmp_path_factory.mktemp("status") / "site"
    results = results_by_hand.many().results
    long = results_by_hand.make_result(f"mlx_lm/{'long_name_' * 6}/ragged/float32/0")
    older = results_by_hand.of_release((*results[::2], long), f"0.31.1.dev{'1' * 30}", "2026-10-01")
    write_status(folder, (*older, *results))
    return folder.as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("name", PAGES)
def test_every_text_can_be_read(new_page, site, picture, name, width, scheme):
    page = new_page(width, 900, scheme)
    page.goto(f"{site}/{name}.html")
    assert page.locator("nav [aria-current=page]").count() == 1
    assert page.evaluate(CONTRAST) == []
    assert page.evaluate(UNREADABLE) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    picture(page, f"status-{name}-{width}-{scheme}", full_page=True)


@pytest.mark.parametrize("name", ["index", "engine-mlx_lm"])
def test_a_large_site_does_not_scroll_sideways(new_page, large, name):
    page = new_page(400, 900)
    page.goto(f"{large}/{name}.html")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    box = page.locator(".grid tbody th").first.bounding_box()
    assert box["width"] >= 100, "its names would be broken after each letter"


def test_a_wide_table_would_be_seen(new_page, site):
    page = new_page(400, 900)
    page.goto(f"{site}/index.html")
    page.add_style_tag(content=".grid { max-width: none } .grid table { width: 60rem }")
    assert page.evaluate("document.documentElement.scrollWidth") > 400


def test_all_is_there_without_scripts(browser, site):
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(f"{site}/index.html")
    page.get_by_role("link", name="mlx_lm", exact=True).first.click()
    heads = page.locator("#families ~ div thead th").all_inner_texts()
    assert heads == ["family", "0.9.1", "0.10.0", "0.10.1"]
    assert page.locator(".plot .bar").count() == 6
    assert page.locator("table td", has_text="differs at output token 3").first.is_visible()
    page.locator("summary", has_text="Repeat a level").click()
    assert page.locator("dd code").first.inner_text().startswith("conformance run")
    context.close()


def test_the_badge_is_drawn(page, site):
    page.goto(f"{site}/engine-mlx_lm.html")
    image = page.locator(".badge img")
    assert image.evaluate("image => image.complete && image.naturalWidth") > 200
    page.locator(".badge a").click()
    page.wait_for_url("**/badges/mlx_lm.svg")
