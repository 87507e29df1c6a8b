"""Markdown of what others have named."""

import pytest
from markdown_it import MarkdownIt

from conformance.report.markdown import code, limited, one_line, table


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("llama", "`llama`"),
        ("a|b", "`a\\|b`"),
        ("a`b", "``a`b``"),
        ("``", "``` `` ```"),
        ("a\nb\t c", "`a b c`"),
        ("@user #1 <script>", "`@user #1 <script>`"),
        ("\x1b[31m\u202e", "`\ufffd[31m\ufffd`"),
        (" \n", ""),
    ],
)
def test_foreign_text_is_code_on_one_line(text, wanted):
    assert code(text) == wanted


def test_half_a_surrogate_can_be_written_as_utf8():
    assert one_line("a\ud800b").encode() == "a\ufffdb".encode()


def test_what_fits_is_whole():
    lines = ["12345"] * 100
    assert limited(lines, 600) == "12345\n" * 100
    cut = limited(lines, 599)
    assert len(cut.encode()) <= 599
    kept = cut.count("12345")
    assert cut.endswith(f"\n\n{100 - kept} more lines are left out.\n")
    assert kept > 60


def test_bytes_count_not_letters():
    assert len(limited(["\u00e9" * 50] * 100, 5000).encode()) <= 5000


def test_where_there_is_no_room_nothing_is_reported():
    assert limited(["12345"] * 100, 20) == ""


@pytest.mark.parametrize(
    "text",
    [
        "llama",
        "a|b||c|",
        "`a` ``b`` |`",
        "<img src=x onerror=alert(1)>",
        "[x](javascript:y) **b** @user #1 https://a.b",
        "\\`a\\`",
        "| a |\n|---|\n# head\n- item",
        "&lt;&#96; $x$ :smile:",
    ],
)
def test_a_parser_finds_in_a_table_what_was_meant_and_nothing_else(text):
    lines = table(("name", "other"), [(code(text), "1"), ("2", code(text))])
    tokens = MarkdownIt("commonmark").enable("table").parse("\n".join(lines))
    inline = [child for token in tokens if token.type == "inline" for child in token.children]
    found = [(child.type, child.content) for child in inline if child.content]
    wanted = ("code_inline", one_line(text))
    assert found == [
        ("text", "name"),
        ("text", "other"),
        wanted,
        ("text", "1"),
        ("text", "2"),
        wanted,
    ]
