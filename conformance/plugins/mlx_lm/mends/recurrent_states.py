"""Recurrent layers whose states run on over the padding of a shorter row."""

from __future__ import annotations

import importlib
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_lm.mends.rows import column_by_column, row_ends, where_inside


def _states_end_with_the_row(owner: Any, hits: Hits) -> Patch:
    """The mend of a layer that is called with ``x`` and the cache of its states, in this order."""

    def call(right: Right, self: Any, x: mx.array, cache: Any = None, **options: Any) -> mx.array:
        columns = x.shape[1]
        ends = row_ends(cache, columns)
        if ends is None:
            return right(self, x, cache, **options)  # type: ignore[no-any-return]
        hits.hit()
        return column_by_column(
            lambda part: [right(self, x[:, part], cache, **options)], cache, ends, columns
        )[0]

    return wrap(owner, "__call__", call)


@mend("jamba-padded-state", "jamba-padded-state-behind-leaks", "reference-jamba-padded-state")
def jamba_states_end_with_the_row(hits: Hits) -> Patch:
    """Jamba's convolution and SSM states are those at each row's own last token."""
    jamba = importlib.import_module("mlx_lm.models.jamba")
    return _states_end_with_the_row(jamba.JambaMambaMixer, hits)


@mend("mamba-padded-state", "mamba-padded-state-behind-leaks", "reference-mamba-padded-state")
def mamba_states_end_with_the_row(hits: Hits) -> Patch:
    """Mamba's convolution and SSM states are those at each row's own last token."""
    mamba = importlib.import_module("mlx_lm.models.mamba")
    return _states_end_with_the_row(mamba.MambaBlock, hits)


@mend(
    "recurrent-gemma-padded-state",
    "recurrent-gemma-padded-state-behind-leaks",
    "reference-recurrent-gemma-padded-state",
)
def recurrent_gemma_states_end_with_the_row(hits: Hits) -> Patch:
    """The convolution and RG-LRU states are those at each row's own last token."""
    recurrent_gemma = importlib.import_module("mlx_lm.models.recurrent_gemma")
    return _states_end_with_the_row(recurrent_gemma.RecurrentBlock, hits)


@mend("recurrent-gemma-first-token", "reference-recurrent-gemma-first-token")
def first_tokens_are_not_scaled(hits: Hits) -> Patch:
    """The first token of each row is not scaled, also where other rows have a state already.

    A row that has none yet is given zeros, which no state is behind a token.
    """
    recurrent_gemma = importlib.import_module("mlx_lm.models.recurrent_gemma")

    def call(right: Right, self: Any, x: mx.array, cache: Any = None) -> Any:
        begins = None if cache is None else mx.all(cache == 0, axis=-1)
        if begins is None or not begins.any().item():
            return right(self, x, cache)
        hits.hit()
        first = x[:, :1]
        y, state = (
            where_inside(begins, new, old)
            for new, old in zip(right(self, first, None), right(self, first, cache), strict=True)
        )
        if x.shape[1] == 1:
            return y, state
        rest, state = right(self, x[:, 1:], state)
        return mx.concatenate([y, rest], axis=1), state

    return wrap(recurrent_gemma.RGLRU, "__call__", call)


@mend("rwkv7-padded-state", "rwkv7-padded-state-behind-leaks", "reference-rwkv7-padded-state")
def rwkv7_states_end_with_the_row(hits: Hits) -> Patch:
    """Both token shifts and the WKV state are those at each row's own last token."""
    rwkv7 = importlib.import_module("mlx_lm.models.rwkv7")

    def call(right: Right, self: Any, x: mx.array, v_first: Any, cache: Any) -> Any:
        columns = x.shape[1]
        ends = row_ends(cache, columns)
        if ends is None:
            return right(self, x, v_first, cache)
        hits.hit()

        def step(part: slice) -> Any:
            return right(self, x[:, part], None if v_first is None else v_first[:, part], cache)

        return column_by_column(step, cache, ends, columns)

    return wrap(rwkv7.Rwkv7Layer, "__call__", call)


@mend(
    "bailing-moe-linear-gla-mask",
    "bailing-moe-linear-gla-mask-behind-leaks",
    "reference-bailing-moe-linear-gla-mask",
)
def linear_attention_ends_with_the_row(hits: Hits) -> Patch:
    """The state of linear attention is that at each row's own last token."""
    bailing = importlib.import_module("mlx_lm.models.bailing_moe_linear")

    def call(
        right: Right, self: Any, x: mx.array, mask: Any, cache: Any, *, offset: Any
    ) -> mx.array:
        columns = x.shape[1]
        ends = row_ends(cache, columns)
        if ends is None:
            return right(self, x, mask, cache, offset=offset)  # type: ignore[no-any-return]
        hits.hit()

        def step(part: slice) -> list[mx.array]:
            return [right(self, x[:, part], mask, cache, offset=offset + part.start)]

        return column_by_column(step, cache, ends, columns)[0]

    return wrap(bailing.LinearAttention, "__call__", call)
