"""Rotary positions by the formulas of their papers, in numpy: frequencies and rotated heads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Turn(NamedTuple):
    """A rotation of heads.

    Attributes:
        frequencies: radians of each pair for one position, ``[dims / 2]``.
        scale: factor of the rotated part.
    """

    frequencies: np.ndarray
    scale: float = 1.0


def powers(dims: int, base: float) -> np.ndarray:
    """The frequencies of plain RoPE (arXiv 2104.09864), ``[dims / 2]``."""
    return np.asarray(float(base) ** (-np.arange(0, dims, 2) / dims))


def _linear(dims: int, base: float, config: Mapping[str, Any], _: int) -> Turn:
    """Position interpolation (arXiv 2306.15595)."""
    return Turn(powers(dims, base) / config["factor"])


def _dynamic(dims: int, base: float, config: Mapping[str, Any], last: int) -> Turn:
    """Dynamic NTK: the base grows with the length so far."""
    most, factor = config["max"], config["factor"]
    grown = factor * max(last, most) / most - (factor - 1)
    return Turn(powers(dims, base * grown ** (dims / (dims - 2))))


def _llama3(dims: int, base: float, config: Mapping[str, Any], _: int) -> Turn:
    """Short waves unchanged, long ones slower, a blend in between (Llama 3.1)."""
    low, high = config.get("low_freq_factor", 1.0), config.get("high_freq_factor", 4.0)
    length = config.get("original_max_position_embeddings", 8192)
    found = []
    for frequency in powers(dims, base):
        turns = length * frequency / (2 * math.pi)
        part = min(max((turns - low) / (high - low), 0.0), 1.0)
        found.append(frequency * (part + (1 - part) / config["factor"]))
    return Turn(np.array(found))


def yarn(dims: int, base: float, config: Mapping[str, Any], _: int) -> Turn:
    """YaRN (arXiv 2309.00071), with the ramp in whole dimensions as in its code."""
    length, factor = config.get("original_max_position_embeddings", 4096), config["factor"]

    def dimension(turns: float) -> float:
        return dims * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(base))

    def magnitude(share: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * share * math.log(factor) + 1.0

    low = max(math.floor(dimension(config.get("beta_fast", 32))), 0)
    high = min(math.ceil(dimension(config.get("beta_slow", 1))), dims - 1)
    width = high - low if high != low else 0.001
    slow = np.clip((np.arange(dims // 2) - low) / width, 0, 1)
    scale = magnitude(config.get("mscale", 1)) / magnitude(config.get("mscale_all_dim", 0))
    return Turn(powers(dims, base) * (slow / factor + 1 - slow), scale)


def longrope(dims: int, base: float, config: Mapping[str, Any], last: int) -> Turn:
    """LongRoPE (arXiv 2402.13753): a divisor for each pair, another for long sequences."""
    length = config["original_max_position_embeddings"]
    which = "long" if last > length else "short"
    factor = config["max"] / length
    scale = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(length))
    divisors = np.array(config[f"{which}_factor"], np.float64)
    return Turn(powers(dims, base) / divisors, config.get(f"{which}_mscale") or scale)


def proportional(dims: int, base: float, config: Mapping[str, Any], _: int) -> Turn:
    """Only the first pairs rotate, at their frequencies among all pairs."""
    turned = int(dims * config.get("partial_rotary_factor", 1.0)) // 2
    found = powers(dims, base) / config.get("factor", 1.0)
    found[turned:] = 0
    return Turn(found)


def _plain(dims: int, base: float, _: Mapping[str, Any], __: int) -> Turn:
    return Turn(powers(dims, base))


def turned(heads: np.ndarray, turn: Turn, first: np.ndarray, *, pairs: bool) -> np.ndarray:
    """The heads, rotated by their positions.

    Args:
        heads: ``[rows, heads, tokens, size]``.
        first: the position of each row's first token, ``[rows]``.
        pairs: whether pairs are adjacent elements; otherwise they are elements of the two halves.
    """
    half = turn.frequencies.size
    at = first[:, None] + np.arange(heads.shape[2])
    angles = (at[..., None] * turn.frequencies)[:, None]
    wide = heads.astype(np.float64)
    one, two = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
        if pairs
        else (
            slice(half),
            slice(half, 2 * half),
        )
    )
    x, y = wide[..., one] * turn.scale, wide[..., two] * turn.scale
    wide[..., one] = x * np.cos(angles) - y * np.sin(angles)
    wide[..., two] = y * np.cos(angles) + x * np.sin(angles)
    return wide


Formula = Callable[[int, float, Mapping[str, Any], int], Turn]
LENGTH = "original_max_position_embeddings"
_SPREAD = [1.0, 1.5, 2.0, 4.0]

# Each config with its formula and the model's longest sequence.
CONFIGS: Sequence[tuple[Formula, dict[str, Any] | None, int]] = (
    (_plain, None, 64),
    (_plain, {"type": "default"}, 64),
    (_plain, {"beta_fast": 2}, 64),
    (_plain, {"type": "mrope", "mrope_section": [2, 1, 1]}, 64),
    (_linear, {"type": "linear", "factor": 4.0}, 64),
    (_linear, {"rope_type": "linear", "factor": 0.5}, 64),
    (_dynamic, {"type": "dynamic", "factor": 4.0}, 6),
    (_dynamic, {"rope_type": "dynamic", "factor": 2.0}, 30),
    (_llama3, {"rope_type": "llama3", "factor": 8.0}, 64),
    (
        _llama3,
        {
            "rope_type": "llama3",
            "factor": 3.0,
            "low_freq_factor": 1.5,
            "high_freq_factor": 5.0,
            LENGTH: 90,
        },
        64,
    ),
    (_llama3, {"type": "llama3", "factor": 2.0, "high_freq_factor": 2.0, LENGTH: 30}, 64),
    (yarn, {"type": "yarn", "factor": 4.0}, 64),
    (yarn, {"rope_type": "yarn", "factor": 1.0, "mscale": 0.5}, 64),
    (yarn, {"rope_type": "yarn", "factor": 8.0, LENGTH: 6}, 64),
    (yarn, {"rope_type": "yarn", "factor": 8.0, LENGTH: 307_000}, 64),
    (yarn, {"type": "telechat3-yarn", "factor": 2.0, "mscale": 0.7, LENGTH: 200}, 64),
    (
        yarn,
        {
            "type": "deepseek_yarn",
            "factor": 40.0,
            "beta_fast": 4,
            "beta_slow": 2,
            "mscale": 0.7,
            "mscale_all_dim": 0.3,
            LENGTH: 500,
        },
        64,
    ),
    (
        longrope,
        {
            "type": "longrope",
            "short_factor": [1.0, 1.1, 1.2, 1.3],
            "long_factor": _SPREAD,
            LENGTH: 4,
        },
        16,
    ),
    (
        longrope,
        {
            "rope_type": "longrope",
            "short_factor": [3.0] * 4,
            "long_factor": _SPREAD,
            LENGTH: 3,
        },
        3,
    ),
    (proportional, {"type": "proportional"}, 64),
    (proportional, {"type": "proportional", "partial_rotary_factor": 0.5, "factor": 2.0}, 64),
)
