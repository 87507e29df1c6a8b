"""Words and harmless texts."""

import pytest

from conformance.core.verdict import Verdict
from conformance.report.pages.words import MEANINGS, brief, shown


def test_every_verdict_has_a_meaning():
    assert set(MEANINGS) == set(Verdict)


def test_a_long_text_is_cut_to_one_line():
    assert brief("a\n  b", 9) == "a b"
    assert brief("x" * 10, 10) == "x" * 10
    assert brief("x" * 11, 10) == "xxxxxxx..."


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain é 中\n\tnext", "plain é 中\n\tnext"),
        ("a\u202eb", r"a\u202eb"),
        ("\u200b\ufeff\u2066", r"\u200b\ufeff\u2066"),
        ("\x1b[31m\x00\x7f", r"\u001b[31m\u0000\u007f"),
        ("\ud800", r"\ud800"),
    ],
)
def test_what_cannot_be_seen_is_written_out(text, seen):
    assert shown(text) == seen
