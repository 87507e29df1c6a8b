"""The words of a served checkpoint: each token id has its own text, so texts can be read as ids.

To the server this is an ordinary tokenizer, loaded from files. Some ids may have special texts, so
that a tiny model can answer with JSON, reasoning, or a tool call. As in real models, these texts
are joined without blanks, so several tokens can form one marker.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from conformance.core.errors import ModelError
from conformance.plugins.servers.answers import Part, PartKind
from conformance.scenarios.marker_styles import STYLES, MarkerStyle

END = "<|conformance_end|>"
"""The end of an answer. Its id is outside the model's vocabulary, so no answer ends by it."""
_TEMPLATE = (
    "{%- for message in messages -%}{{- message.content -}}"
    "{%- if not loop.last %} {% endif -%}{%- endfor -%}"
    # One argument of a client, one of the command line, as enable_thinking may be either.
    "{%- if ending is defined and writes_ending %} t{{ ending }}{% endif -%}"
)

_PLAIN = re.compile(r"t\d+")


def text_of(tokens: Sequence[int]) -> str:
    """The text that has these tokens."""
    return " ".join(f"t{token}" for token in tokens)


def tokens_of(text: str, words: Sequence[tuple[str, int]] = ()) -> tuple[int, ...]:
    """The tokens of a text, of which these have other words than ``text_of`` gives them.

    Raises:
        ValueError: a part of the text is no word; the message names it.
    """
    ids = {word.strip(): token for word, token in words}
    return tuple(_token(word, ids) for word in words_of(text, ids))


def words_of(text: str, special: Iterable[str] = ()) -> list[str]:
    """The words of a text, between which some tokenizers have no blank; ``special`` are no numbers.

    What is no word ends at a blank.
    """
    return _words(tuple(special)).findall(text)


@functools.cache  # a stream is read again with each piece
def _words(special: tuple[str, ...]) -> re.Pattern[str]:
    names = map(re.escape, sorted(filter(None, special), key=len, reverse=True))
    return re.compile("|".join([*names, _PLAIN.pattern, r"\S+"]))


def _token(word: str, ids: Mapping[str, int]) -> int:
    if word in ids:
        return ids[word]
    if not _PLAIN.fullmatch(word):
        raise ValueError(f"the answer has {word!r}, which is no word of its vocabulary")
    return int(word[1:])


def write_tokenizer(folder: Path, vocab_size: int) -> None:
    """Write a tokenizer of ``vocab_size`` words with a chat template that joins messages.

    Its argument ``ending``, a token, adds that token's word at the end, if it has the argument
    ``writes_ending``, too.

    For some model types transformers uses its own class, whatever is written here
    (tokenization_auto.py:889, for example for qwen2). That class reads only added tokens from the
    file and has no tokens for other text.
    """
    words = {f"t{token}": token for token in range(vocab_size)} | {END: vocab_size}
    tokenizer = Tokenizer(WordLevel(words, unk_token="t0"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.add_tokens(
        [
            AddedToken(f"t{token}", lstrip=True, single_word=True, normalized=False)
            for token in range(vocab_size)
        ]
    )
    tokenizer.add_special_tokens([AddedToken(END, special=True, normalized=False)])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": _TEMPLATE,
        "eos_token": END,
        "pad_token": "t0",
        "unk_token": "t0",
    }
    text = json.dumps(config, indent=2)
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")


def end_nowhere(folder: Path, vocab_size: int) -> None:
    """Set an end that no answer has in a checkpoint's tokenizer with words of its own."""
    path, config_path = folder / "tokenizer.json", folder / "tokenizer_config.json"
    tokenizer = Tokenizer.from_file(str(path))
    if tokenizer.token_to_id(END) is None:
        tokenizer.add_special_tokens([AddedToken(END, special=True, normalized=False)])
    given = tokenizer.token_to_id(END)
    if given is None or given < vocab_size:
        raise ModelError(f"the end of an answer got token id {given}, of {vocab_size}")
    tokenizer.save(str(path))
    config = json.loads(config_path.read_text(encoding="utf-8"))
    config["eos_token"] = END
    config_path.write_text(json.dumps(config, indent=2), encoding="utf-8")
    model_path = folder / "config.json"
    model = json.loads(model_path.read_text(encoding="utf-8"))
    model["eos_token_id"] = given
    model_path.write_text(json.dumps(model, indent=2), encoding="utf-8")


def end_by(folder: Path, tokens: Sequence[int], *, named: bool = True) -> None:
    """Name the tokens that end any answer, as checkpoints do: the tokenizer has the first alone.

    Args:
        named: without it, the tokenizer has none of them.
    """
    generation = json.dumps({"eos_token_id": list(tokens)})
    (folder / "generation_config.json").write_text(generation, encoding="utf-8")
    if not named:
        return
    config_path = folder / "tokenizer_config.json"
    config = json.loads(config_path.read_text(encoding="utf-8"))
    # A whole word: "t1" is not to be found in "t17".
    form = {"lstrip": True, "rstrip": False, "single_word": True, "normalized": False}
    kind = {"__type": "AddedToken", "special": True}
    config["eos_token"] = {"content": text_of(tokens[:1]), **form, **kind}
    config_path.write_text(json.dumps(config, indent=2), encoding="utf-8")


THINK, TOOL = ("<think>", "</think>"), ("<tool_call>", "</tool_call>")
_WITHIN = re.compile(r"[^t\d\s]")  # in no text of plain words


def rename(
    folder: Path, words: Sequence[tuple[str, int]], style: MarkerStyle = STYLES["json_tools"]
) -> None:
    """Set the texts of these token ids in the tokenizer's files.

    Args:
        style: of the markers by which libraries choose a parser.
    """
    path, config_path = folder / "tokenizer.json", folder / "tokenizer_config.json"
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    vocabulary: dict[str, int] = content["model"]["vocab"]
    texts = {token: text for text, token in words}
    renamed = {texts.get(token, text): token for text, token in vocabulary.items()}
    for added in content["added_tokens"]:
        if (text := texts.get(added["id"])) is not None:
            added["content"] = text
            # Within a text: a stop string is read as the tokens that it is made of.
            added["single_word"] &= not _WITHIN.search(text)
    # Libraries look for whole markers in the vocabulary; no answer has these ids.
    above = max(vocabulary.values()) + 1
    markers = (*style.thinking, style.opening, style.closing, *style.whole)
    further = [text for text in markers if text and text not in renamed]
    content["model"]["vocab"] = renamed | {t: above + i for i, t in enumerate(further)}
    content["decoder"] = {"type": "ByteFallback"}
    path.write_text(json.dumps(content), encoding="utf-8")
    config = json.loads(config_path.read_text(encoding="utf-8"))
    # A comment in the template names the format of tool calls.
    config["chat_template"] = f"{{#- {style.template} -#}}{config['chat_template']}"
    if style.named:
        config["tool_parser_type"] = style.name
    config_path.write_text(json.dumps(config, indent=2), encoding="utf-8")


def exchange(folder: Path) -> None:
    """Exchange the texts of neighbours, such as ids 4 and 5, in a checkpoint's tokenizer.

    So no other tokenizer of these words reads or writes its model's tokens.
    """
    path = folder / "tokenizer.json"
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    vocabulary: dict[str, int] = content["model"]["vocab"]
    pairs = {n: n ^ 1 for n in vocabulary.values() if _plain(vocabulary, n, n ^ 1)}
    content["model"]["vocab"] = {text: pairs.get(n, n) for text, n in vocabulary.items()}
    for added in content["added_tokens"]:
        if added["id"] in pairs:
            added["content"] = text_of((pairs[added["id"]],))
    path.write_text(json.dumps(content), encoding="utf-8")


def _plain(vocabulary: Mapping[str, int], *tokens: int) -> bool:
    return all(vocabulary.get(text_of((token,))) == token for token in tokens)


def exchanged(folder: Path) -> dict[int, int]:
    """For each id whose text is that of another one, that other one."""
    path = folder / "tokenizer.json"
    if not path.exists():  # nothing was started
        return {}
    vocabulary = json.loads(path.read_text(encoding="utf-8"))["model"]["vocab"]
    return {n: int(t[1:]) for t, n in vocabulary.items() if _PLAIN.fullmatch(t) and n != int(t[1:])}


def whole_text(parts: Sequence[Part], markers: Mapping[PartKind, tuple[str, str]]) -> str:
    """The text from which these parts were read, with the markers between them."""
    texts, kind = list[str](), PartKind.TEXT
    for part in parts:
        if part.kind is not kind:
            texts += markers.get(kind, ("", ""))[1], markers.get(part.kind, ("", ""))[0]
            kind = part.kind
        texts.append(part.text)
    return "".join(texts) + (markers[kind][1] if kind is PartKind.TOOL else "")


MARKERS: Mapping[PartKind, tuple[str, str]] = {PartKind.REASONING: THINK, PartKind.TOOL: TOOL}
"""The markers before and after each kind of part."""
