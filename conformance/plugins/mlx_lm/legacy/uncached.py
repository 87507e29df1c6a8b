"""A pass without a cache, also for models of old releases that need one."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache


def uncached(model: Any, inputs: mx.array) -> mx.array:
    """Logits ``[1, length, vocab]`` of a pass over ``inputs`` of shape ``[1, length]``.

    qwen3_next of 0.28.0 reads a state that it sets only with a cache; it gets a fresh cache.
    """
    try:
        logits: mx.array = model(inputs)
    except UnboundLocalError:
        logits = model(inputs, cache=make_prompt_cache(model))
    return logits
