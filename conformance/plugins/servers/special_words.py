"""A served checkpoint whose tokenizer has special texts for some token ids.

With these a tiny model can answer with JSON, reasoning, or a tool call. As in real models, texts
are joined without blanks, so several tokens can form one marker.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.plugins.servers.asking import Part, PartKind

THINK, TOOL = ("<think>", "</think>"), ("<tool_call>", "</tool_call>")
# A comment in the template names the format of tool calls.
_FORMAT = "{#- <tool_call> tool_call.name -#}"
_PLAIN = re.compile(r"t\d+")


def rename(folder: Path, words: Sequence[tuple[str, int]]) -> None:
    """Set the texts of these token ids in the tokenizer's files."""
    path, config_path = folder / "tokenizer.json", folder / "tokenizer_config.json"
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    vocabulary: dict[str, int] = content["model"]["vocab"]
    texts = {token: text for text, token in words}
    renamed = {texts.get(token, text): token for text, token in vocabulary.items()}
    for added in content["added_tokens"]:
        added["content"] = texts.get(added["id"], added["content"])
    # Libraries look for whole markers in the vocabulary; no answer has these ids.
    above = max(vocabulary.values()) + 1
    content["model"]["vocab"] = renamed | {t: above + i for i, t in enumerate((*THINK, *TOOL))}
    content["decoder"] = {"type": "ByteFallback"}
    path.write_text(json.dumps(content), encoding="utf-8")
    config = json.loads(config_path.read_text(encoding="utf-8"))
    config["chat_template"] = _FORMAT + str(config["chat_template"])
    config_path.write_text(json.dumps(config, indent=2), encoding="utf-8")


def tokens_of(text: str, words: Sequence[tuple[str, int]]) -> tuple[int, ...]:
    """The tokens of a text whose words are joined without blanks.

    Raises:
        ValueError: a part of the text is not a word.
    """
    ids = {word.strip(): token for word, token in words}
    special = sorted(ids, key=len, reverse=True)
    found, at = [], 0
    while at < len(text):
        if word := next((word for word in special if text.startswith(word, at)), ""):
            found.append(ids[word])
        elif plain := _PLAIN.match(text, at):
            word = plain[0]
            found.append(int(word[1:]))
        elif not text[at].isspace():
            strange = repr(text[at])
            raise ValueError(f"the answer has {strange}, which is no word of its vocabulary")
        at += len(word) or 1
    return tuple(found)


def whole_text(parts: Sequence[Part], markers: Mapping[PartKind, tuple[str, str]]) -> str:
    """The text from which these parts were read, with the markers between them."""
    text, kind = "", PartKind.TEXT
    for part in parts:
        if part.kind is not kind:
            text += markers.get(kind, ("", ""))[1] + markers.get(part.kind, ("", ""))[0]
            kind = part.kind
        text += part.text
    return text + (markers[kind][1] if kind is PartKind.TOOL else "")


MARKERS: Mapping[PartKind, tuple[str, str]] = {PartKind.REASONING: THINK, PartKind.TOOL: TOOL}
"""The markers before and after each kind of part."""
