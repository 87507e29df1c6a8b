"""Vocabularies whose tokens are parts of words and of characters, for answers in many scripts.

A tiny model's answers have no meaning, but they are known. So the pieces of a text are given to the
tokens of an answer in their order: the answer then spells that text. Where answers share a token,
they go on with something else in mid-character, as a real model's may.
"""

from __future__ import annotations

import enum
import functools
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from conformance.core.errors import Unsupported


class PieceKind(enum.StrEnum):
    """How a tokenizer cuts text, and who turns its pieces into text again.

    ``BYTE_LEVEL``: each byte is a letter of its own, as in GPT-2. ``BYTE_FALLBACK``: characters
    that are not in the vocabulary become bytes, as in SentencePiece. ``LIBRARY``: as
    ``BYTE_LEVEL``, but the tokenizer itself decodes all tokens of a line again at each step.
    """

    BYTE_LEVEL = "byte_level"
    BYTE_FALLBACK = "byte_fallback"
    LIBRARY = "library"


SPACE = "▁"  # a blank in the pieces of SentencePiece
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_CHARACTERS = re.compile(f"{SPACE}+|.", re.DOTALL)  # several blanks are one
# Characters of one to four bytes; emoji of several, with joiners, skin tones and variants; letters
# with combining marks; scripts that join letters, and that are written from right to left.
TEXTS = (
    " snow",
    "👩‍👩‍👧",
    "é",
    "雪が",
    " ş",
    "👍🏽",
    "क्षि",
    "ing",
    "한국",
    "🇩🇪",
    " naïve",
    "שׁל",
    "ไม้",
    "🏳️‍🌈",
    "\n",
    "ệ",
    "1️⃣",
    "𝔘𐍈",
    "ﷺ",
    " ice",
    "Ω≈ç",
    "你好",
    "ñ",
    "🧑🏿‍🚀",
    "…",
    "அம்மா",
)
# Letters with a mark of their own, which normalisation would make one: a token of each answer.
DECOMPOSED = ("e\u0301", "o\u0308", "n\u0303", "c\u0327", "u\u030a")
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # of prompts alone


@functools.cache
def letters() -> Mapping[int, str]:
    """The letter that stands for each byte in a byte-level vocabulary.

    Printable characters of Latin-1 stand for themselves, others for those from U+0100 on.
    """
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (byte for byte in range(256) if byte not in own)
    return {b: chr(b) for b in own} | {b: chr(256 + n) for n, b in enumerate(others)}


def bytes_of(kind: str, pieces: Sequence[str]) -> bytes:
    """The bytes that these pieces stand for."""
    if kind == PieceKind.BYTE_FALLBACK:
        return b"".join(
            bytes([int(found[1], 16)])
            if (found := _BYTE.fullmatch(piece))
            else piece.replace(SPACE, " ").encode()
            for piece in pieces
        )
    bytes_by_letter = {letter: byte for byte, letter in letters().items()}
    return bytes(bytes_by_letter[letter] for piece in pieces for letter in piece)


def readable(kind: str, piece: str) -> str:
    """The text of a piece; of a part of a character its bytes, as SentencePiece writes them."""
    raw = bytes_of(kind, [piece])
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "".join(f"<0x{byte:02X}>" for byte in raw)


@functools.cache
def single_bytes(kind: str) -> tuple[str, ...]:
    """The pieces of single bytes, which every vocabulary of this kind has."""
    if kind == PieceKind.BYTE_FALLBACK:
        return tuple(f"<0x{byte:02X}>" for byte in range(256))
    return tuple(letters()[byte] for byte in range(256))


def word(kind: str, number: int) -> str:
    """The piece of a whole word with the blank before it, for prompts."""
    blank = SPACE if kind == PieceKind.BYTE_FALLBACK else letters()[ord(" ")]
    return blank + _LETTERS[number // len(_LETTERS)] + _LETTERS[number % len(_LETTERS)]


def spelled(
    kind: str,
    tokens: tuple[int, int],
    words: Sequence[int],
    answers: Sequence[Sequence[int]],
    *,
    first: str = "",
) -> tuple[tuple[str, int], ...]:
    """Pieces for the tokens ``[low, high)``, of which the answers are made.

    Args:
        words: tokens of prompts; each is a whole word.
        first: the text with which the first answer begins, as far as its tokens are no words.

    Raises:
        Unsupported: an answer has a token without a piece.
    """
    found = {token: word(kind, number) for number, token in enumerate(words)}
    for letter, answer in zip(itertools.cycle(DECOMPOSED), answers, strict=False):
        late = answer[len(answer) // 4 :]
        token = next((token for token in late if token not in found), None)
        if token is not None:
            found[token] = _whole(kind, letter)
    taken = set(found.values())
    texts = itertools.chain([first] if first else [], itertools.cycle(TEXTS))
    rng = np.random.default_rng(len(answers))
    for answer in answers:
        if others := [token for token in answer if not tokens[0] <= token < tokens[1]]:
            raise Unsupported(f"an answer has the special token {others[0]}: not supported")
        to_come: list[str] = []
        for token in answer:
            if token in found:
                to_come = []
                continue
            tried = itertools.count()
            while (not to_come or to_come[0] in taken) and next(tried) < 4 * len(TEXTS):
                to_come = list(_cut(kind, next(texts), rng))
            if to_come[0] in taken:
                break
            found[token] = to_come.pop(0)
            taken.add(found[token])
    left = (piece for piece in single_bytes(kind) if piece not in taken)
    found |= {token: next(left) for token in range(*tokens) if token not in found}
    return tuple((found[token], token) for token in sorted(found))


def _whole(kind: str, text: str) -> str:
    """A text without blanks as one piece."""
    if kind == PieceKind.BYTE_FALLBACK:
        return text
    return "".join(letters()[byte] for byte in text.encode())


def _cut(kind: str, text: str, rng: np.random.Generator) -> Iterator[str]:
    """The pieces of a text: of few bytes each, so that most characters have several."""
    if kind == PieceKind.BYTE_FALLBACK:
        for char in _CHARACTERS.findall(text.replace(" ", SPACE)):
            if char[0] in {SPACE, "\n"} or char.isascii() or rng.random() < 1 / 3:
                yield char if char != "\n" else single_bytes(kind)[ord(char)]
            else:
                yield from (single_bytes(kind)[byte] for byte in char.encode())
        return
    coded = [letters()[byte] for byte in text.encode()]
    while coded:
        count = int(rng.integers(1, 4))
        yield "".join(coded[:count])
        coded = coded[count:]
