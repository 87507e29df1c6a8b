"""Faults of layers that attend to an image beside the sequence."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import mlx.core as mx

from conformance.core.faults.base import Hits, replaced
from conformance.plugins.mlx_vlm.faults.patching import fault, part

_CLASS = "cross-attention"
_STATES = ("cross_attention_states", "encoder_outputs", "encoder_hidden_states")


def _states_of_another(hits: Hits) -> AbstractContextManager[None]:
    owner = part("generate.ar")
    real = owner._merge_prefill_prompt_kwargs

    def merge(rows: Any, ids: Any) -> Any:
        embeds, kwargs = real(rows, ids)
        for name in _STATES:
            states = kwargs.get(name)
            if isinstance(states, mx.array) and states.shape[0] > 1:
                hits.hit()
                kwargs[name] = mx.roll(states, 1, 0)
        return embeds, kwargs

    return replaced(owner, "_merge_prefill_prompt_kwargs", merge)


def _scalar_guard(hits: Hits) -> AbstractContextManager[None]:
    owner = part("models.mllama.language").MllamaTextCrossAttention
    real = owner.__call__

    def call(self: Any, *args: Any, **options: Any) -> Any:
        cache, states = options.get("cache"), options.get("cross_attention_states")
        if states is None and cache is not None and isinstance(cache.offset, mx.array):
            hits.hit()
            bool(cache.offset > 0)
        return real(self, *args, **options)

    return replaced(owner, "__call__", call)


FAULTS = (
    fault(
        "B22.cross-states-of-another-row",
        _CLASS,
        "mlx-vlm #1030",
        "each row attends to the next one's image",
        _states_of_another,
        kills="images_together",
        where="module:*ttention",
        needs=("beside",),
    ),
    fault(
        "B22.guard-compares-a-scalar",
        _CLASS,
        "mlx-vlm #1030",
        "whether the image was seen is asked of the offsets of all rows as of one number",
        _scalar_guard,
        kills="equal_length ragged",
        where="crash:*",
        needs=("family:mllama",),
        crash=True,
    ),
)
