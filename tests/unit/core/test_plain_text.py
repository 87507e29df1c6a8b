"""Text is never a command."""

import pytest

from conformance.core.plain_text import is_plain, plain, plain_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[2Jb\x07", "a\\x1b[2Jb\\x07"),
        ("a\u202egnp", "a\\u202egnp"),
        ("a\n::error::b", "a\n\\::error::b"),
        ("  ::set-output name=a::b", "  \\::set-output name=a::b"),
        ("x ##[error] y", "x #\\#[error] y"),
        ("a::b\tc\nd", "a::b\tc\nd"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_is_unseen_is_written_out(text, shown):
    assert plain(text) == shown
    assert plain(shown) == shown, "twice is as once"


def test_a_line_is_one_line():
    assert plain_line("a\nOK: 3 cases\r\tb") == "a\\nOK: 3 cases\\r\\tb"
    assert is_plain("Modèle 模型")
    assert not is_plain("a\nb")
