"""Convolution states that hold a shorter row's padding in place of its last columns."""

from __future__ import annotations

import importlib
import threading
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, together, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_lm.mends.rows import columns_before, row_ends


def _behind(state: mx.array | None, x: mx.array, keep: int, axis: int = 1) -> mx.array:
    """``x`` after the ``keep`` columns of ``state``, or after zeros, along ``axis``."""
    if state is None:
        shape = list(x.shape)
        shape[axis] = keep
        state = mx.zeros(shape, x.dtype)
    return mx.concatenate([state, x], axis=axis)


@mend(
    "olmo-hybrid-conv-state",
    "olmo-hybrid-conv-state-held",
    "olmo-hybrid-conv-state-behind-leaks",
    "olmo-hybrid-conv-state-nope-behind-leaks",
    "reference-olmo-hybrid-conv-state",
)
def olmo_hybrid_convolutions_end_with_the_row(hits: Hits) -> Patch:
    """Each of the three convolution states is the columns up to each row's own last token."""
    olmo_hybrid = importlib.import_module("mlx_lm.models.olmo_hybrid")

    def apply(right: Right, self: Any, *args: Any) -> mx.array:
        x, _, state, cache, index = args
        found: mx.array = right(self, *args)
        ends = row_ends(cache, x.shape[1])
        if ends is not None:
            hits.hit()
            keep = self.conv_kernel_size - 1
            cache[index] = columns_before(_behind(state, x, keep), ends, keep)
        return found

    return wrap(olmo_hybrid.GatedDeltaNet, "_apply_conv1d", apply)


@mend(
    "baichuan-m1-conv-state",
    "baichuan-m1-conv-state-behind-leaks",
    "reference-baichuan-m1-conv-state",
)
def baichuan_m1_keeps_the_last_token(hits: Hits) -> Patch:
    """The key and the value that are kept are those of each row's own last token."""
    baichuan_m1 = importlib.import_module("mlx_lm.models.baichuan_m1")
    scope = threading.local()

    def convolve(right: Right, self: Any, u: mx.array, weights: Any, state: Any = None) -> Any:
        scope.seen.append(_behind(state, u, 1, axis=2))
        return right(self, u, weights, state=state)

    def call(right: Right, self: Any, x: mx.array, mask: Any = None, cache: Any = None) -> Any:
        states = None if cache is None else cache[0]
        scope.seen = []
        found = right(self, x, mask, cache)
        ends = row_ends(states, x.shape[1])
        if states is not None and ends is not None:
            hits.hit()
            for index, seen in enumerate(scope.seen):
                states[index] = columns_before(seen, ends, 1, axis=2)
            states.advance(x.shape[1])
        return found

    return together(
        wrap(baichuan_m1.Attention, "_custom_convolution", convolve),
        wrap(baichuan_m1.Attention, "__call__", call),
    )


@mend(
    "nemotron-h-ssm-lengths",
    "nemotron-h-ssm-lengths-behind-leaks",
    "reference-nemotron-h-ssm-lengths",
)
def nemotron_h_scans_know_lengths(hits: Hits) -> Patch:
    """The SSM scan is given the rows' lengths, as Granite's is."""
    nemotron_h = importlib.import_module("mlx_lm.models.nemotron_h")
    scope = threading.local()

    def ssm(right: Right, self: Any, *args: Any) -> mx.array:
        *_, cache, _ = args
        scope.lengths = getattr(cache, "lengths", None)
        return right(self, *args)  # type: ignore[no-any-return]

    def update(right: Right, *args: Any) -> Any:
        hits.hit_if(scope.lengths is not None)
        return right(*args, lengths=scope.lengths)

    return together(
        wrap(nemotron_h.NemotronHMamba2Mixer, "_ssm", ssm),
        wrap(nemotron_h, "ssm_update", update),
    )


@mend(
    "longcat-flash-ngram-padded-context",
    "longcat-flash-ngram-padded-context-behind-leaks",
    "reference-longcat-flash-ngram-padded-context",
)
def the_id_context_ends_with_the_row(hits: Hits) -> Patch:
    """The ids that are kept for the next n-grams are those before each row's own end."""
    longcat = importlib.import_module("mlx_lm.models.longcat_flash_ngram")

    def call(right: Right, self: Any, ids: mx.array, cache: Any = None) -> mx.array:
        before = None if cache is None else cache[0]
        found: mx.array = right(self, ids, cache=cache)
        ends = row_ends(cache, ids.shape[1])
        if ends is not None:
            hits.hit()
            kept = cache[0].shape[1]
            # A shorter row may have fewer ids: a missing id is hashed like 0.
            empty = mx.zeros((ids.shape[0], kept), mx.int64)
            parts = [empty, *([] if before is None else [before]), ids.astype(mx.int64)]
            columns = mx.concatenate(parts, axis=1)[:, -kept - ids.shape[1] :]
            cache[0] = columns_before(columns, ends, kept)
            cache.advance(ids.shape[1])
        return found

    return wrap(longcat.NgramEmbedding, "__call__", call)


@mend("longcat-flash-ngram-context-width")
def the_id_context_is_of_one_width(hits: Hits) -> Patch:
    """The id context is n - 1 ids wide from the first token on; ids before the first are 0."""
    longcat = importlib.import_module("mlx_lm.models.longcat_flash_ngram")

    def call(right: Right, self: Any, ids: mx.array, cache: Any = None) -> mx.array:
        if cache is not None:
            width = 0 if cache[0] is None else cache[0].shape[1]
            if width < self.n - 1:
                hits.hit()
                empty = mx.zeros((ids.shape[0], self.n - 1 - width), mx.int64)
                cache[0] = empty if width == 0 else mx.concatenate([empty, cache[0]], axis=1)
        return right(self, ids, cache=cache)  # type: ignore[no-any-return]

    return wrap(longcat.NgramEmbedding, "__call__", call)
