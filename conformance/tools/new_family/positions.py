"""Rules for positions: windows, lengths, rotations and their scaling."""

from __future__ import annotations

from typing import Any

from conformance.tools.new_family.draft import Tower

WINDOW = 8
LENGTH = 512
TRAINED = 32
BASE = 1000.0
LOCAL_BASE = 500.0
FACTOR = 8.0

WINDOWS = (
    "sliding_window",
    "sliding_window_size",
    "attention_window_size",
    "attention_chunk_size",
    "window_size",
    "local_window_size",
    "sliding_window_len",
)
LENGTHS = (
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "max_seq_len",
    "max_sequence_length",
    "seq_length",
    "model_max_length",
    "max_model_len",
)
BASES = ("rope_theta", "rotary_emb_base", "rope_base", "global_rope_theta", "rope_global_base_freq")
LOCAL_BASES = ("rope_local_base_freq", "local_rope_theta", "swa_rope_theta")
ROTARY = ("rotary_dim", "rope_dim", "rotary_ndims")
SCALINGS = ("rope_scaling", "rope_parameters")


def windows(tower: Tower) -> None:
    """Set windows and chunks to 8 tokens, so that they slide within a case."""
    if tower.kind == "text":
        tower.cap(WINDOWS, WINDOW, "small enough to slide within a case")
    tower.cap(("floor_scale",), WINDOW, "a step within a case")


def lengths(tower: Tower) -> None:
    """Reduce the longest prompt that the config allows."""
    tower.cap(LENGTHS, LENGTH, "longer than any case")
    tower.cap(
        ("original_max_position_embeddings", "initial_context_length"),
        TRAINED,
        "a case is longer, so that scaled positions are used",
    )


def bases(tower: Tower) -> None:
    """Reduce the rotary base, so that every pair of a tiny head rotates within a case."""
    why = "every pair of a tiny head rotates within a case"
    for keys, small in ((BASES, BASE), (LOCAL_BASES, LOCAL_BASE)):
        for place, key, value in tower.each(*keys):
            if isinstance(value, list):
                high = max(value)
                small_list = [BASE if item == high else LOCAL_BASE for item in value]
                tower.draft.put(place, key, small_list, why)
            elif isinstance(value, int | float):
                tower.draft.put(place, key, min(value, small), why)


def rotary_part(tower: Tower) -> None:
    """Rotate the same share of a head's elements."""
    for place, key, value in tower.each(*ROTARY):
        if isinstance(value, int) and "head" in tower.sizes:
            small = _even(value * tower.sizes["head"] / tower.sizes["original_head"])
            tower.draft.put(place, key, small, "the same share of a head")
            tower.sizes["rotary"] = small
    tower.keep("partial_rotary_factor", "rotary_pct", "partial_rotary_factors")


def scalings(tower: Tower) -> None:
    """Keep the kind of scaled rotary embeddings, with trained lengths shorter than a case."""
    for place, key, value in tower.each(*SCALINGS):
        if isinstance(value, dict):
            small = _scaling(value, tower, place.original)
            tower.draft.put(place, key, small, "the same kind of positions, lengths of a case")


def _scaling(original: dict[str, Any], tower: Tower, around: dict[str, Any]) -> dict[str, Any]:
    """One scaling, or one for each type of layer."""
    parts = (value for value in original.values() if isinstance(value, dict))
    original_bases = [part["rope_theta"] for part in parts if part.get("rope_theta")]
    small: dict[str, Any] = {}
    for key, value in original.items():
        if isinstance(value, dict):
            small[key] = _scaling(value, tower, {**around, **value})
            theta = value.get("rope_theta")
            if theta and len(set(original_bases)) > 1 and theta < max(original_bases):
                small[key]["rope_theta"] = LOCAL_BASE
        elif key == "rope_theta" and isinstance(value, int | float):
            small[key] = min(float(value), BASE)
        elif key == "factor" and isinstance(value, int | float):
            small[key] = min(float(value), FACTOR)
        elif key == "original_max_position_embeddings":
            small[key] = min(int(value), TRAINED)
        elif key == "mrope_section":
            small[key] = apportion(value, _rotated(tower, {**around, **original}) // 2)
        elif key in ("short_factor", "long_factor"):
            small[key] = thinned(value, _rotated(tower, {**around, **original}) // 2)
        else:
            small[key] = value
    return small


def _rotated(tower: Tower, fields: dict[str, Any]) -> int:
    """The number of rotated elements in a tiny head."""
    share = fields.get("partial_rotary_factor") or tower.get("partial_rotary_factor") or 1.0
    return tower.sizes.get("rotary") or _even(tower.sizes.get("head", 16) * share)


def _even(size: float) -> int:
    return max(2, 2 * round(size / 2))


def apportion(parts: list[int], total: int) -> list[int]:
    """Integers in the proportions of ``parts`` that sum to ``total``; none becomes 0.

    The remainder is given to the largest fractions (Hamilton's method).
    """
    whole = sum(parts)
    exact = [part * total / whole for part in parts]
    small = [max(1, int(share)) if part else 0 for part, share in zip(parts, exact, strict=True)]
    order = sorted(range(len(parts)), key=lambda i: small[i] - exact[i])
    turn = 0
    while sum(small) < total:
        small[order[turn % len(order)]] += 1
        turn += 1
    while sum(small) > total and max(small) > 1:
        small[small.index(max(small))] -= 1
    return small


def thinned(values: list[float], count: int) -> list[float]:
    """``count`` of the values, evenly spaced, including the first and the last."""
    if count >= len(values):
        return values
    step = (len(values) - 1) / max(count - 1, 1)
    return [values[round(index * step)] for index in range(count)]
