"""Errors in a config that no rule can correct, and large fields that no rule knows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from types import NoneType
from typing import Any

from conformance.core.errors import AdoptionError
from conformance.tools.new_family import depths, experts, positions, vision, widths
from conformance.tools.new_family.draft import Draft, Fields, Place, Tower, Unshrunk

_LARGE = 512
_MOST_LAYERS = 1000
# Every model needs these; some configs list the number of heads for each layer.
_WHOLE = (*depths.COUNTS, "vocab_size", "n_vocab", *widths.HIDDEN, *widths.HEAD_COUNTS)
_OBJECTS = ("text_config", "llm_config", "language_config", "vision_config", "audio_config")


def examine(config: Fields) -> None:
    """Check a config by itself, before any library reads it.

    Raises:
        AdoptionError: a field is not valid; names it.
    """
    for key in _OBJECTS:
        if not isinstance(config.get(key, {}), dict | NoneType):
            raise AdoptionError(f"{key} is {_brief(config[key])}, which is not an object")
    for path, fields in _objects(config):
        for key, value in fields.items():
            problem = _problem(key, value)
            if problem:
                raise AdoptionError(f"{path}{key} is {_brief(value)}, which is {problem}")


def _objects(config: Fields) -> Iterator[tuple[str, Fields]]:
    yield "", config
    yield from ((f"{k}.", v) for k, v in config.items() if k in _OBJECTS and v)


def _problem(key: str, value: object) -> str:
    """The problem with a field's value; empty if there is none."""
    if isinstance(value, float) and not math.isfinite(value):
        return "not a finite number"
    pattern = isinstance(value, str) and key.endswith("_pattern")
    if key not in KNOWN_SIZES or value is None or isinstance(value, list | dict | bool) or pattern:
        return ""
    if isinstance(value, str):
        return "text, not a number"
    if not isinstance(value, int | float):
        return "not a number"
    return _bad_size(key, value)


def _bad_size(key: str, value: float) -> str:
    if key in _WHOLE and (value < 1 or value != int(value)):
        return "not a whole number of at least 1"
    if value < 0:
        return "less than 0"
    if key in depths.COUNTS and value > _MOST_LAYERS:
        return f"more layers than any model has ({_MOST_LAYERS} at most)"
    return ""


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def check(text: Tower) -> None:
    """Check the config for contradictions, which no rule can correct.

    Raises:
        AdoptionError: there is one; names the field.
    """
    for keys in (depths.COUNTS, ("vocab_size", "n_vocab"), widths.HIDDEN):
        value = text.get(*keys)
        if value is None:
            raise AdoptionError(f"the config has no {keys[0]!r}")
        if text.number(*keys) is None:
            raise AdoptionError(f"{keys[0]} is {_brief(value)}, which is not a whole number")
    heads, kv = text.number(*widths.HEAD_COUNTS), text.number("num_key_value_heads")
    if heads and kv and heads % kv:
        raise AdoptionError(
            f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv}"
        )
    count, chosen = text.number(*experts.COUNTS), text.number(*experts.CHOSEN)
    if count and chosen and chosen > count:
        raise AdoptionError(
            f"num_experts_per_tok {chosen} is more than the number of experts, {count}"
        )
    types, layers = text.get("layer_types"), text.number(*depths.COUNTS) or 0
    if isinstance(types, list) and len(types) != layers:
        raise AdoptionError(f"layer_types has {len(types)} entries, num_hidden_layers is {layers}")


def left_over(draft: Draft, places: list[Place]) -> Iterable[Unshrunk]:
    """Fields that are still large, each with the reason."""
    towers = {place.path for place in places}
    for place in places:
        for key, value in place.original.items():
            path = place.name(key)
            if path in draft.looked or key not in place.now:
                continue
            if isinstance(value, int) and not isinstance(value, bool) and value > _LARGE:
                yield Unshrunk(path, value, "no rule knows what this number means")
            elif isinstance(value, list) and len(value) > 16:
                yield Unshrunk(path, value, "no rule knows what this list is for")
            elif isinstance(value, dict) and _deep(value) and path not in towers:
                yield Unshrunk(path, value, "no rule knows what this object is for")


def _deep(value: Fields) -> bool:
    """Whether an object holds a large number."""
    return any(isinstance(item, int) and item > _LARGE for item in value.values())


# Adds the fields that a config leaves to the library's full-size defaults -------------------------

KNOWN_SIZES = frozenset(
    (
        *widths.HIDDEN,
        *widths.HEAD_COUNTS,
        *widths.KV_COUNTS,
        *widths.HEAD_SIZES,
        *widths.FEEDS,
        *widths.EXPERT_FEEDS,
        *depths.COUNTS,
        *depths.PERIODS,
        *experts.COUNTS,
        *experts.CHOSEN,
        *positions.WINDOWS,
        *depths.STATES,
        *vision.DEPTHS,
        *vision.WIDTHS,
        *vision.HEAD_COUNTS,
        *vision.PATCHES,
        "query_pre_attn_scalar",
        "image_size",
        "mm_tokens_per_image",
        "vocab_size",
        "mamba_d_ssm",
        "mamba_n_heads",
        "mamba_d_head",
    )
)
"""Fields that matter even if a config leaves them to the library's defaults."""


def fill(tower: Tower, settings: list[Mapping[str, Any]]) -> None:
    """Add the fields that a config leaves to the library's defaults, so that they can be shrunk."""
    first = tower.places[0]
    for place in tower.places:
        known = _match(place, settings)
        for key, value in known.items():
            wanted = KNOWN_SIZES if place is first else {"vocab_size"}
            absent = place.original.get(key) is None and key not in place.original
            if key in wanted and absent and _is_large(value):
                place.original[key] = place.now[key] = value
                place.filled.add(key)


def _match(place: Place, settings: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The settings that agree with the place in most fields and contradict it in few or none."""

    def agreement(found: Mapping[str, Any]) -> int:
        shared = [key for key in place.original if key in found and _plain(place.original[key])]
        equal = sum(bool(found[key] == place.original[key]) for key in shared)
        return equal - 2 * (len(shared) - equal)

    best = max(settings, key=agreement, default={})
    return best if best and agreement(best) > 0 else {}


def _plain(value: Any) -> bool:
    return isinstance(value, int | float | str) and not isinstance(value, bool)


def _is_large(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 1
