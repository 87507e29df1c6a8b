"""A tokenizer that makes its text grow without bounds is refused before it is loaded."""

import json

import pytest

from conformance.core.errors import CheckpointError
from conformance.tools.checkpoints.growth import check_tokenizer


def tokenizer(*replacements):
    parts = [
        {"type": "Replace", "pattern": {"String": old}, "content": new} for old, new in replacements
    ]
    return json.dumps({"normalizer": {"type": "Sequence", "normalizers": parts}})


def test_a_bomb_of_replacements_is_blamed_on_its_file(tmp_path):
    (tmp_path / "tokenizer.json").write_text(tokenizer(*[("a", "a" * 10)] * 12))
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: its replacements make a text"):
        check_tokenizer(tmp_path)


def test_a_replacement_as_real_ones_have_it_is_right(tmp_path):
    check_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text(tokenizer((" ", "\u2581"), ("``", '"'), ("a", "aa")))
    check_tokenizer(tmp_path)
