"""The matrix without a mouse."""


def focused(page):
    """Text of what has the focus, with the row that it is in."""
    return page.evaluate(
        """() => {
          const cell = document.activeElement.closest("td, th");
          if (!cell) return document.activeElement.id;
          return `${cell.parentElement.cells[0].textContent}|${cell.textContent}`;
        }"""
    )


def test_the_table_is_one_stop_for_tab(matrix):
    page = matrix()
    page.get_by_role("button", name="Clear").focus()
    page.keyboard.press("Tab")
    if focused(page) == "scroller":  # a box that scrolls is a stop of its own
        page.keyboard.press("Tab")
    assert focused(page) == "family|family"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('table')") is None


def test_arrows_move_from_cell_to_cell(matrix):
    page = matrix()
    page.get_by_role("button", name="family").focus()
    path = ["ArrowDown", "ArrowRight", "End", "ArrowDown", "Home", "Control+End", "ArrowUp"]
    seen = []
    for key in path:
        page.keyboard.press(key)
        seen.append(focused(page))
    assert seen == [
        "gemma3|gemma3",
        "gemma3|mlx_lm",
        "gemma3|.",
        "llama|.",
        "llama|llama",
        "qwen3_moe|.",
        "qwen3|.",
    ]
    page.keyboard.press("Control+Home")
    assert focused(page) == "family|family"


def test_arrows_skip_what_is_hidden(matrix):
    page = matrix("family=qwen3*&scenario=ragged")
    page.get_by_role("button", name="family").focus()
    page.keyboard.press("ArrowDown")
    assert focused(page) == "qwen3|qwen3"
    page.keyboard.press("End")
    assert focused(page) == "qwen3|X!"
    page.keyboard.press("ArrowDown")
    assert focused(page) == "qwen3_moe|."


def test_enter_opens_a_case_and_escape_goes_back_to_its_cell(matrix):
    page = matrix("family=qwen3&scenario=ragged")
    page.get_by_role("button", name="family").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "panel"
    assert "case=mlx_lm%2Fqwen3%2Fragged" in page.evaluate("location.hash")
    page.keyboard.press("Escape")
    assert page.locator("#panel").is_hidden()
    assert focused(page) == "qwen3|X!"
    assert "case=" not in page.evaluate("location.hash")


def test_enter_on_a_column_sorts_by_it(matrix):
    page = matrix()
    page.get_by_role("button", name="ragged").focus()
    page.keyboard.press("Enter")
    assert page.locator("#matrix tbody th").first.text_content() == "qwen3"


def test_what_has_the_focus_is_seen(matrix):
    page = matrix()
    for selector in ("#matrix td.v-tie", "#matrix thead button", "#f-q", "nav a", "#theme"):
        page.locator(selector).first.focus()
        page.keyboard.press("Shift")  # from here on the focus is a keyboard's
        style = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert style not in ("none", ""), selector


def test_the_first_stop_skips_to_the_content(page, report):
    page.goto(f"{report}/index.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
