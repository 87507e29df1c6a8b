"""Tokenizers of served checkpoints whose tokens are parts of words and of characters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from conformance.plugins.servers.answers import Answer
from conformance.plugins.servers.asking import Tokens
from conformance.scenarios.pieces import SPACE, PieceKind, bytes_of, single_bytes

_UNKNOWN = "<unk>"
# A blank belongs to the word after it.
_WORDS = Regex(r" ?\p{L}+| ?[^\s\p{L}]+|\s+")


def write_pieces(folder: Path, kind: str, pieces: Sequence[tuple[str, int]]) -> None:
    """Give a checkpoint's tokenizer these pieces; its special tokens keep their ids.

    What a text needs besides, such as pieces from which others are merged, gets ids that no answer
    has.
    """
    path, config_path = folder / "tokenizer.json", folder / "tokenizer_config.json"
    before: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    own = {token for _, token in pieces}
    vocabulary = {t["content"]: t["id"] for t in before["added_tokens"] if t["id"] not in own}
    vocabulary |= dict(pieces)
    above = max(before["model"]["vocab"].values()) + 1
    merges: list[tuple[str, str]] = []
    single = set(single_bytes(kind))
    for piece, _ in pieces:
        if piece not in single:
            merges += [(piece[:at], piece[at]) for at in range(1, len(piece))]
    needed = [part for pair in merges for part in (*pair, "".join(pair))]
    for piece in (*needed, *single_bytes(kind), _UNKNOWN):
        vocabulary.setdefault(piece, max(above, len(vocabulary), *vocabulary.values()) + 1)
    _fill(vocabulary)
    fallback = kind == PieceKind.BYTE_FALLBACK
    model = BPE(
        vocabulary,
        list(dict.fromkeys(merges)),
        byte_fallback=fallback,
        unk_token=_UNKNOWN if fallback else None,
    )
    tokenizer = Tokenizer(model)
    if fallback:
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
        )
        tokenizer.decoder = decoders.Sequence(
            [
                decoders.Replace(SPACE, " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                decoders.Strip(" ", 1, 0),
            ]
        )
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(_WORDS, "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        plain = decoders.ByteLevel()
        # Libraries know the decoder by its form, and decode by themselves where they know it.
        tokenizer.decoder = decoders.Sequence([plain]) if kind == PieceKind.LIBRARY else plain
    special = [t for t in before["added_tokens"] if t["special"] and t["id"] not in own]
    tokenizer.add_special_tokens(
        [AddedToken(t["content"], special=True, normalized=False) for t in special]
    )
    tokenizer.save(str(path))
    config = json.loads(config_path.read_text(encoding="utf-8"))
    config |= {"unk_token": _UNKNOWN, "pad_token": single_bytes(kind)[0]}
    config_path.write_text(json.dumps(config, indent=2), encoding="utf-8")


def _fill(vocabulary: dict[str, int]) -> None:
    """Give every id below the largest a piece; some ids of a model may have none."""
    taken = set(vocabulary.values())
    for token in range(max(taken)):
        if token not in taken:
            vocabulary[f"<unused{token}>"] = token


_CUT = "\ufffd"


class Spelling:
    """Reads answers whose tokens are pieces of text, as the library's single stream spells them.

    Args:
        tokenizer: has ``decode``.
        detokenizer: the library's own for one stream.
    """

    def __init__(self, tokenizer: Any, detokenizer: Any) -> None:
        self._tokenizer, self._detokenizer = tokenizer, detokenizer
        self._kind, self._pieces = "", dict[int, str]()

    def of(self, kind: str, pieces: Sequence[tuple[str, int]]) -> Spelling:
        """The same, for a vocabulary of these pieces."""
        self._kind, self._pieces = kind, {token: piece for piece, token in pieces}
        return self

    def word(self, token: int) -> str:
        """The text of a token by itself."""
        return str(self._tokenizer.decode([token]))

    def right(self, tokens: Sequence[int], ends: Sequence[int], stops: Sequence[str]) -> Right:
        """What an answer with these tokens is.

        Args:
            ends: tokens that end any answer, of which no text is made.
            stops: strings before which a text ends.
        """
        said = tokens[:-1] if tokens and tokens[-1] in ends else tokens
        begun, single = [], ""
        self._detokenizer.reset()
        for token in said:
            begun.append(single.rstrip(_CUT))
            self._detokenizer.add_token(token)
            single += str(self._detokenizer.last_segment)
        self._detokenizer.finalize()
        single += str(self._detokenizer.last_segment)
        spelled = bytes_of(self._kind, [self._pieces[token] for token in said])
        texts = [spelled.decode(errors="replace")]
        texts += [text.removeprefix(" ") for text in texts]
        if _whole(single) in map(_whole, texts):
            texts.insert(0, single)
        return Right(tuple(tokens), tuple(begun), tuple(_before(text, stops) for text in texts))

    def read(self, right: Right, answer: Answer) -> Tokens:
        """The tokens of an answer so far: those of its logprobs, or those that its text shows.

        A text that lacks characters of the right one, or replaces them, or goes on after it, has
        its tokens. One that has others shows a wrong token, if a token begins so.
        """
        said = [entry.get("logprob") for entry in answer.entries]
        if said and answer.entries[0].get("id") is not None:
            return [(int(e["id"]), e.get("logprob")) for e in answer.entries]
        if said:
            words = [str(entry.get("token")) for entry in answer.entries]
            found = [self._token(right, at, word) for at, word in enumerate(words)]
            return list(zip(found, said, strict=True))
        if any(answer.text.startswith(text) for text in right.texts):
            return [(token, None) for token in right.tokens[: len(right.begun)]]
        same = [n for n, text in enumerate(right.begun) if answer.text.startswith(text)]
        count = max(same, default=0)
        tokens: Tokens = [(token, None) for token in right.tokens[:count]]
        rest = answer.text[len(right.begun[count]) if count < len(right.begun) else 0 :]
        if not any(_lacks(answer.text, text) for text in right.texts):
            tokens += [(token, None) for token in self._first(rest)]
        return tokens

    def _token(self, right: Right, at: int, word: str) -> int:
        """The token at a place whose text is ``word``; the right one if that is its text."""
        if at < len(right.tokens) and self.word(right.tokens[at]) == word:
            return right.tokens[at]
        return next((t for t in self._pieces if self.word(t) == word), 0)

    def _first(self, text: str) -> list[int]:
        """The longest token with which a text begins; none if it begins within a character."""
        texts = ((len(word := self.word(t)), t, word) for t in self._pieces)
        fits = [(n, -t) for n, t, word in texts if n and _CUT not in word and text.startswith(word)]
        return [-max(fits)[1]] if fits else []


@dataclass(frozen=True)
class Right:
    """An answer as it must be.

    Attributes:
        tokens: of the single stream, with what ended it.
        begun: before each token that has a text, the text so far, without a character that is not
            whole.
        texts: what is right as the whole text: what the bytes of all tokens say, with and without
            a blank at the start, and what the single stream makes of characters that are cut.
    """

    tokens: tuple[int, ...]
    begun: tuple[str, ...]
    texts: tuple[str, ...]


def _whole(text: str) -> str:
    """A text without the characters that are cut."""
    return text.replace(_CUT, "")


def _before(text: str, stops: Sequence[str]) -> str:
    """A text up to the stop string that is said first."""
    said = [(text.index(stop) + len(stop), text.index(stop)) for stop in stops if stop in text]
    return text[: min(said)[1]] if said else text


def _lacks(text: str, right: str) -> bool:
    """Whether all characters of a text are in the right one, in this order; some may be cut."""
    rest = iter(right)
    return all(char in rest for char in text if char != _CUT)
