"""A tokenizer that ends its process is blamed on its file."""

import json
import os
import time

import pytest

from conformance.core import guarded_call
from conformance.core.errors import CheckpointError, ModelError, Unsupported
from conformance.tools.checkpoints import tokenizing
from conformance.tools.checkpoints.tokenizing import check_tokenizer, encoded


class PanicException(BaseException):
    """What a panic of Rust becomes."""


def fails(error):
    def tokenize(folder, texts, *, trusted=False):
        raise error

    return tokenize


def test_token_ids_come_back(library, folder):
    assert encoded(library, folder, ("a bb", ""), trusted=False) == ((1, 2), ())


def test_a_library_that_only_this_process_has_is_called_here(library, folder, monkeypatch):
    monkeypatch.setattr(guarded_call, "FORKS", False)
    library.tokenize = lambda folder, texts, trusted: ((os.getpid(),),)
    assert encoded(library, folder, ("a",), trusted=False) == ((os.getpid(),),)


@pytest.mark.parametrize(
    ("tokenize", "what"),
    [
        (lambda folder, texts, trusted: os.abort(), "ends its process by signal SIGA"),
        (fails(PanicException("no\nsuch token")), "ends in PanicException: no such token; take"),
    ],
)
def test_one_that_aborts_or_panics_is_blamed(library, folder, tokenize, what):
    library.tokenize = tokenize
    with pytest.raises(CheckpointError, match=rf"tokenizer\.json: can't be used: .+ {what}"):
        encoded(library, folder, ("a",), trusted=False)


def test_one_that_never_ends_is_blamed(library, folder, monkeypatch):
    monkeypatch.setattr(tokenizing, "_SECONDS", 0.3)
    library.tokenize = lambda folder, texts, trusted: time.sleep(60)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: .+ takes more than 0.3 seconds"):
        encoded(library, folder, ("a",), trusted=False)


def test_what_the_library_says_stays_what_it_is(library, folder):
    library.tokenize = fails(Unsupported("not here"))
    with pytest.raises(Unsupported, match="not here"):
        encoded(library, folder, ("a",), trusted=False)
    library.tokenize = fails(ModelError("no merges"))
    with pytest.raises(CheckpointError, match="its tokenizer can't be loaded: no merges"):
        encoded(library, folder, ("a",), trusted=False)


def test_the_first_file_of_a_tokenizer_is_to_blame(library, folder):
    (folder / "tokenizer.json").rename(folder / "vocab.txt")
    library.tokenize = lambda folder, texts, trusted: os.abort()
    with pytest.raises(CheckpointError, match=r"vocab\.txt: can't be used"):
        encoded(library, folder, ("a",), trusted=False)


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
