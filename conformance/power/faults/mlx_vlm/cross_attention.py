"""Faults of layers that attend to an image beside the sequence."""

from __future__ import annotations

from functools import partial
from typing import Any

import mlx.core as mx

from conformance.backend.shared_faults import ATTENTION_MODULE
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, after, before
from conformance.plugins.mlx_vlm.library_parts import part
from conformance.power.faults.mlx_vlm.tools import mlx_vlm_fault

_STATES = ("cross_attention_states", "encoder_outputs", "encoder_hidden_states")
_fault = partial(mlx_vlm_fault, fault_class="cross-attention", source="mlx-vlm #1030")


@_fault(
    "B22.cross-states-of-another-row",
    kills=("images_together",),
    where=ATTENTION_MODULE,
    needs=("beside",),
)
def cross_states_of_another_row(hits: Hits) -> Patch:
    """Each row attends to the next one's image."""

    def roll(merged: Any, *_: Any) -> Any:
        kwargs = merged[1]
        for name in _STATES:
            states = kwargs.get(name)
            if isinstance(states, mx.array) and states.shape[0] > 1:
                hits.hit()
                kwargs[name] = mx.roll(states, 1, 0)
        return merged

    return after(part("generate.ar"), "_merge_prefill_prompt_kwargs", roll)


@_fault(
    "B22.guard-compares-a-scalar",
    kills=("equal_length", "ragged"),
    where="crash:*",
    needs=("family:mllama",),
    crash=True,
)
def guard_compares_a_scalar(hits: Hits) -> Patch:
    """The guard that the image was seen compares the offsets of all rows as one number."""

    def guard(_: Any, *__: Any, cache: Any = None, **options: Any) -> None:
        states = options.get("cross_attention_states")
        if states is None and cache is not None and isinstance(cache.offset, mx.array):
            hits.hit()
            bool(cache.offset > 0)

    return before(part("models.mllama.language").MllamaTextCrossAttention, "__call__", guard)
