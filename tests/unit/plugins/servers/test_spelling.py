"""Answers whose tokens are pieces of text are read as the library's single stream spells them."""

import json

import pytest
from mlx_lm.tokenizer_utils import load
from tokenizers import Tokenizer

from conformance.core.schedule import Request
from conformance.plugins.servers.answers import Answer
from conformance.plugins.servers.claims import right_text
from conformance.plugins.servers.spelling import Spelling, write_pieces
from conformance.plugins.servers.words import write_tokenizer
from conformance.scenarios.pieces import PieceKind, letters, word


def coded(data):
    return "".join(letters()[byte] for byte in data)


WOMAN = "👩".encode()
# so, a woman in two pieces, the first byte of é, the rest of it with a blank
PIECES = (
    (word(PieceKind.BYTE_LEVEL, 0), 1),
    (word(PieceKind.BYTE_LEVEL, 1), 2),
    (coded(WOMAN[:3]), 3),
    (coded(WOMAN[3:]), 4),
    (coded(b"\xc3"), 5),
    (coded(b"\xa9 "), 6),
    (coded(b"ice"), 7),
    (coded(b"fire"), 8),
)
TOKENS = (1, 3, 4, 7, 5)
TEXT = "AA👩ice�"


@pytest.fixture
def spelling(tmp_path):
    write_tokenizer(tmp_path, 16)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    write_pieces(tmp_path, PieceKind.BYTE_LEVEL, PIECES)
    tokenizer = load(tmp_path)
    return Spelling(tokenizer, tokenizer.detokenizer).of(PieceKind.BYTE_LEVEL, PIECES)


@pytest.mark.parametrize("kind", PieceKind)
def test_a_prompt_has_the_tokens_of_its_words(tmp_path, kind):
    write_tokenizer(tmp_path, 16)
    write_pieces(tmp_path, kind, [(word(kind, n), n + 1) for n in range(8)])
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = "AA AC AB" if kind == PieceKind.BYTE_FALLBACK else " AA AC AB"
    assert tokenizer.encode(text).ids == [1, 3, 2]


def test_the_text_of_the_single_stream_and_of_the_bytes_are_right(spelling):
    right = spelling.right(TOKENS, (), ())
    assert TEXT in right.texts
    assert f" {TEXT}" in right.texts
    request = Request("a", (1,), 4)
    assert right_text(request, TEXT, right.texts).holds
    for wrong in ("AA👩ice", "AA�ice�", "AA👩fire�", "AA👩ice��"):
        assert not right_text(request, wrong, right.texts).holds


def test_a_text_ends_before_a_stop_string_and_without_what_ends_it(spelling):
    assert spelling.right(TOKENS, (), ("nothing", "👩i")).texts[0] == "AA"
    ended = spelling.right((*TOKENS[:4], 2), (2,), ())
    assert ended.texts[0] == "AA👩ice"
    assert (len(ended.tokens), len(ended.begun)) == (5, 4)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (TEXT, TOKENS),
        (f"{TEXT} and more", TOKENS),
        ("AA👩", TOKENS[:3]),
        ("AA", TOKENS[:2]),  # the second has no text by itself
        ("AA👩fire", (*TOKENS[:3], 8)),  # a wrong token
        ("AA👩ce�", TOKENS[:3]),  # a letter is lost: the tokens may be right
    ],
)
def test_tokens_are_read_from_a_text(spelling, text, tokens):
    found = spelling.read(spelling.right(TOKENS, (), ()), Answer(text))
    assert tuple(token for token, _ in found) == tokens


def test_tokens_are_those_of_the_logprobs_where_there_are_any(spelling):
    right = spelling.right(TOKENS, (), ())
    ids = [{"id": 8, "logprob": -1.0}]
    assert spelling.read(right, Answer("AA", entries=ids)) == [(8, -1.0)]
    words = [{"token": spelling.word(t), "logprob": -0.5} for t in (1, 3, 8)]
    assert spelling.read(right, Answer("AA", entries=words)) == [(1, -0.5), (3, -0.5), (8, -0.5)]


def test_a_special_token_keeps_its_id(tmp_path):
    write_tokenizer(tmp_path, 16)
    before = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    write_pieces(tmp_path, PieceKind.LIBRARY, PIECES)
    after = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    end = "<|conformance_end|>"
    assert after.token_to_id(end) == before.token_to_id(end) == 16
    assert after.token_to_id(PIECES[0][0]) == 1
