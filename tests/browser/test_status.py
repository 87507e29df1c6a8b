"""The status site, with scripts and without."""


def test_all_is_there_without_scripts(browser, status):
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(f"{status}/index.html")
    page.get_by_role("link", name="mlx_lm", exact=True).first.click()
    heads = page.locator("#families ~ div thead th").all_inner_texts()
    assert heads == ["family", "0.9.1", "0.10.0", "0.10.1"]
    assert page.locator(".plot .bar").count() == 6
    assert page.locator("table td", has_text="differs at output token 3").first.is_visible()
    page.locator("summary", has_text="Repeat a level").click()
    assert page.locator("dd code").first.inner_text().startswith("conformance run")
    context.close()


def test_the_badge_is_drawn(page, status):
    page.goto(f"{status}/engine-mlx_lm.html")
    image = page.locator(".badge img")
    assert image.evaluate("image => image.complete && image.naturalWidth") > 200
    page.locator(".badge a").click()
    page.wait_for_url("**/badges/mlx_lm.svg")
