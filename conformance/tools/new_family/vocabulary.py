"""Rules for the vocabulary, and the special tokens in it."""

from __future__ import annotations

from typing import Any

from conformance.tools.new_family.draft import Place, Tower

VOCAB = 256
TEXT_END = 240
"""Prompts are drawn from ids below; special tokens have ids above."""
MOST_SPECIAL = 96

_ENDINGS = ("_token_id", "_token_index", "_token_ids")


def vocabulary(tower: Tower) -> None:
    """Use 256 ids, enough for text to vary; per-layer tables that were shorter stay shorter."""
    original = tower.number("vocab_size", "n_vocab")
    if original is None:
        return
    tower.cap(("vocab_size", "n_vocab", "padded_vocab_size"), VOCAB, "enough for text to vary")
    for place, key, value in tower.each("vocab_size_per_layer_input"):
        small = VOCAB if value >= original else TEXT_END
        tower.draft.put(place, key, small, "shorter than the vocabulary, as before, or not")


def is_special(key: str) -> bool:
    """Whether a field holds the id of a special token."""
    return key.endswith(_ENDINGS)


def special_ids(places: list[Place]) -> list[int]:
    """The distinct ids of special tokens in the config, in the order of their names."""
    named = [
        (key, value) for place in places for key, value in place.original.items() if is_special(key)
    ]
    ids: list[int] = []
    for _, value in sorted(named, key=lambda item: item[0]):
        ids += [i for i in (value if isinstance(value, list) else [value]) if _is_id(i)]
    return list(dict.fromkeys(ids))


def text_end(count: int) -> int:
    """One past the last id of text, if ``count`` special tokens come after it."""
    return min(TEXT_END, VOCAB - min(count, MOST_SPECIAL))


def moved(ids: list[int]) -> dict[int, int]:
    """New ids after those of text, in order; ids past the end of the vocabulary share the last."""
    first = text_end(len(ids))
    return {old: min(first + index, VOCAB - 1) for index, old in enumerate(ids)}


def special(tower: Tower, table: dict[int, int]) -> None:
    """Move special tokens after the ids of text; fields that had one id still have one."""
    for place in tower.places:
        for key, value in place.original.items():
            if is_special(key):
                new = _moved(value, table)
                tower.draft.put(place, key, new, "moved into the tiny vocabulary, behind the text")


def _moved(value: Any, table: dict[int, int]) -> Any:
    if isinstance(value, list):
        return [table[item] if _is_id(item) else item for item in value]
    return table.get(value, value) if _is_id(value) else value


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
