"""Texts for prompts: built-in ones, or a user's file."""

import pytest

from conformance.core.errors import CheckpointError
from conformance.tools.checkpoints.prompts import BUILT_IN, read_texts


def test_without_a_file_there_are_the_built_in_ones():
    assert read_texts(None) == BUILT_IN
    assert len({text.split()[0] for text in BUILT_IN}) == len(BUILT_IN)


def test_a_file_has_one_text_a_line(tmp_path):
    (tmp_path / "p.txt").write_text("Guten Tag\n\n  \nZwölf Äpfel\n", encoding="utf-8")
    assert read_texts(tmp_path / "p.txt") == ("Guten Tag", "Zwölf Äpfel")


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "can't be read: No such"), (b"\xe9\n", "is not UTF-8"), (b" \n", "holds no prompt")],
)
def test_a_bad_file_is_reported(content, message, tmp_path):
    path = tmp_path / "p.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        read_texts(path)
