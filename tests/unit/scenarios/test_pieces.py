"""Vocabularies whose pieces spell many scripts."""

import numpy as np
import pytest

from conformance.core.errors import Unsupported
from conformance.scenarios.pieces import (
    SPACE,
    PieceKind,
    bytes_of,
    readable,
    single_bytes,
    spelled,
    word,
)

TOKENS = (1, 192)
WORDS = range(1, 25)


def answers(count=5):
    rng = np.random.default_rng(0)
    return [tuple(int(t) for t in rng.permutation(np.arange(30, 190))[:32]) for _ in range(count)]


@pytest.mark.parametrize("kind", PieceKind)
def test_each_token_has_one_piece_and_answers_spell_characters_of_several(kind):
    made = spelled(kind, TOKENS, WORDS, answers())
    assert sorted(token for _, token in made) == list(range(*TOKENS))
    assert len({piece for piece, _ in made}) == len(made)
    pieces = {token: piece for piece, token in made}
    text = bytes_of(kind, [pieces[t] for t in answers()[0]]).decode(errors="replace")
    assert text.startswith(" snow")
    assert any(ord(char) > 0xFFFF for char in text)
    alone = [bytes_of(kind, [pieces[t]]).decode(errors="replace") for t in answers()[0]]
    assert sum("\ufffd" in text for text in alone) > 8


@pytest.mark.parametrize("kind", PieceKind)
def test_single_bytes_and_words_are_what_they_stand_for(kind):
    assert bytes_of(kind, single_bytes(kind)) == bytes(range(256))
    assert bytes_of(kind, [word(kind, 0), word(kind, 27)]) == b" AA BB"


def test_an_answer_with_a_special_token_is_not_spelled():
    with pytest.raises(Unsupported, match="special token 250"):
        spelled(PieceKind.BYTE_LEVEL, TOKENS, WORDS, [(30, 250)])


@pytest.mark.parametrize(
    ("kind", "piece", "text"),
    [
        (PieceKind.BYTE_LEVEL, "\u010a\u0120a", "\n a"),
        (PieceKind.LIBRARY, "\u00e9\u013d", "<0xE9><0x9B>"),
        (PieceKind.BYTE_FALLBACK, "<0xE9>", "<0xE9>"),
        (PieceKind.BYTE_FALLBACK, f"{SPACE}snow", " snow"),
    ],
)
def test_pieces_are_shown_as_text_or_as_bytes(kind, piece, text):
    assert readable(kind, piece) == text
