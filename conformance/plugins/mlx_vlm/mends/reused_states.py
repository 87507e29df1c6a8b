"""States of rows that are padded on the right, as where prefixes are reused."""

from __future__ import annotations

import importlib
import threading
from typing import Any

import mlx.core as mx
from mlx_vlm.models import ssm

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, together, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm.mends.recurrent_states import last_own, own_tokens


@mend("apc-ssm-state-of-padded-rows")
def no_time_passes_in_padding(hits: Hits) -> Patch:
    """Padding is no time step: it adds nothing to a row's state, nor lets it decay."""
    call = threading.local()

    def attend(right: Right, x: mx.array, *args: Any, **options: Any) -> Any:
        mask, lengths = options.pop("mask", None), options.pop("lengths", None)
        valid = mask
        if lengths is not None:
            ended = mx.arange(x.shape[1]) < lengths[:, None]
            valid = ended if mask is None else mask & ended
        hits.hit_if(valid is not None and not mx.all(valid).item())
        call.valid = valid
        return right(x, *args, **options)

    def steps(found: mx.array, *_: Any) -> mx.array:
        return found if call.valid is None else found * call.valid[..., None]

    return together(wrap(ssm, "ssm_attn", attend), after(ssm, "compute_dt", steps))


def _last_column(valid: mx.array, hidden: mx.array, old: mx.array | None) -> mx.array:
    """The last own column of each row; else what was before."""
    before = None if old is None else old[:, None, None]
    return last_own(valid, hidden[:, None], before)[:, 0, 0]


@mend("apc-zaya1-vl-state-of-padded-rows")
def zaya1_vl_keeps_the_last_own_columns(hits: Hits) -> Patch:
    """What comes before a row's next token are its own last columns."""
    module = importlib.import_module("mlx_vlm.models.zaya1_vl.language")
    call = threading.local()

    def convolved(
        right: Right, layers: Any, x: mx.array, state: Any, size: int, **options: Any
    ) -> Any:
        found, last = right(layers, x, state, size, **options)
        if call.valid is not None and size:
            known = state is not None and options["use_state"]
            old = state if known else mx.zeros((x.shape[0], size, x.shape[-1]), x.dtype)
            ends = mx.max(mx.where(call.valid, mx.arange(x.shape[1]) + 1, 0), axis=1)
            own = ends[:, None] + mx.arange(size)
            last = mx.take_along_axis(mx.concatenate([old, x], axis=1), own[..., None], axis=1)
        return found, last

    def layer(
        right: Right, self: Any, hidden: mx.array, cache: Any = None, *args: Any, **kw: Any
    ) -> Any:
        states = module._split_cache(cache)[1]
        if states is None:
            return right(self, hidden, cache, *args, **kw)
        call.valid, old = own_tokens(states, hidden.shape[1]), states[1]
        found = right(self, hidden, cache, *args, **kw)
        if call.valid is not None:
            hits.hit()
            states[1] = _last_column(call.valid, hidden, old)
        states.advance(hidden.shape[1])
        return found

    return together(
        wrap(module.CCA, "__call__", layer), wrap(module, "_causal_conv1d_stack", convolved)
    )
