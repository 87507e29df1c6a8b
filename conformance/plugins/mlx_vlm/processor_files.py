"""Writes the files of a family's real processor: a tiny tokenizer and JSON configs.

Every token id has its own word (``t17``), so a text can be read as token ids. The special tokens
have the texts that the library's processor looks for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlx_vlm import prompt_utils
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from conformance.core.errors import FamilyError
from conformance.core.family import Family, Processor

# The tokenizer class that uses ``tokenizer.json`` unchanged.
_ANY_KIND = "PreTrainedTokenizerFast"


def write_processor(family: Family, folder: Path) -> None:
    """Write ``tokenizer.json``, ``tokenizer_config.json`` and the family's own JSON files.

    Raises:
        FamilyError: two special tokens have the same id, or a role names no special token.
    """
    made = family.facts.processor or Processor()
    special, roles = made.tokenizer.special, made.tokenizer.roles
    where = family.path or family.name
    if len(set(special.values())) != len(special):
        raise FamilyError(f"{where}: conformance.processor.tokenizer.special: two have one id")
    for role, text in roles.items():
        if text not in special:
            raise FamilyError(
                f"{where}: conformance.processor.tokenizer.roles: "
                f"{role} is {text!r}, which is no special token"
            )
    words = {word(token): token for token in range(family.vocab_size)}
    words = {text: token for text, token in words.items() if token not in special.values()}
    tokenizer = Tokenizer(WordLevel({**words, **special}, unk_token=word(0)))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    if made.tokenizer.kind != _ANY_KIND:
        # Classes with their own rules for splitting text do not split added tokens.
        tokenizer.add_tokens([AddedToken(text, normalized=False) for text in words])
    tokenizer.save(str(folder / "tokenizer.json"))
    if "pad_token" not in roles:
        # The tokenizer may be called with padding; any token will do because it is masked.
        roles = {"pad_token": word(0), **roles}
    config: dict[str, Any] = {"tokenizer_class": made.tokenizer.kind, **roles}
    if not _takes_strings(family):
        config["chat_template"] = _template(made)
    for name, content in {"tokenizer_config.json": config, **made.files}.items():
        (folder / name).write_text(json.dumps(content, indent=2), encoding="utf-8")


def _takes_strings(family: Family) -> bool:
    """Whether the library passes strings to a template where transformers 5.24 needs messages.

    The models' own processors take strings; a plain tokenizer takes them if it has no template.
    """
    formats: dict[str, Any] = getattr(prompt_utils, "MODEL_CONFIG", {})
    return getattr(formats.get(str(family.config.get("model_type"))), "value", "") == "prompt_only"


def _template(made: Processor) -> str:
    """A template that writes each part's text or its medium's marker, and of a tool one word."""
    cases = [
        "{%- elif part.type.startswith('" + kind + "') -%}" + f" {marker} "
        for kind, marker in made.markers.items()
    ]
    parts = "{%- if part.type == 'text' -%}{{ part.text }}" + "".join(cases) + "{%- endif -%}"
    return (
        "{%- for message in messages -%}"
        "{%- if message.content is string -%}{{ message.content }}"
        "{%- else -%}{%- for part in message.content -%}" + parts + "{%- endfor -%}"
        "{%- endif -%}{%- endfor -%}"
        # What it says of a tool is a token, as other templates write all of its schema.
        "{%- for tool in tools or () if tool.function.name == 'written' %}"
        " t{{ tool.function.description }}{% endfor -%}"
    )


def word(token: int) -> str:
    """The text of an ordinary token."""
    return f"t{token}"


def text_of(parts: Sequence[tuple[int, ...] | str]) -> str:
    """The prompt's text: words for token ids, and unchanged markers."""
    return " ".join(
        part if isinstance(part, str) else " ".join(word(token) for token in part)
        for part in parts
        if part
    )
