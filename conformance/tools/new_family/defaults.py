"""Adds the fields that a config leaves to the library's full-size defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.tools.new_family import depths, experts, positions, states, vision, widths
from conformance.tools.new_family.draft import Place, Tower

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
        *states.STATES,
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
