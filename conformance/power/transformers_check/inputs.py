"""The inputs of both sides: two equivalent configs, and a prompt."""

from __future__ import annotations

from typing import Any

from conformance.core.family import Family
from conformance.core.weights import draw
from conformance.power.transformers_check.known_differences import Change, merged, without

STEPS = 8
"""The number of greedy tokens."""
PROMPT = 28
"""The least number of tokens of a prompt, and of windows that it spans."""
WINDOWS = 3


def changed(family: Family, changes: tuple[Change, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The config that the library reads, and the one that transformers gets."""
    config = dict(family.config)
    for change in changes:
        config = merged(config, {**change.both, **dict.fromkeys(change.null)})
    other = config
    for change in changes:
        other = other[change.tower] if change.tower else other
        other = without(merged(other, change.transformers), change.drop)
    return config, other


def prompt_of(family: Family) -> tuple[int, ...]:
    """Token ids of a prompt that is longer than several of the family's windows."""
    low, high = family.tokens
    count = max(PROMPT, WINDOWS * (family.facts.window or 0) + 4)
    drawn = draw("prompt", (count,), seed=0)
    return tuple(low + int((number + 4.0) * 1e6) % (high - low) for number in drawn)
