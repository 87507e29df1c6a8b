"""Recurrent and convolution states that run on over, or hold, a shorter row's padding."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, together, wrap
from conformance.core.mends import mend


def row_ends(cache: Any, columns: int) -> mx.array | None:
    """The column after each row's last token in a pass of ``columns``.

    ``None`` if the cache has no lengths, as when no row is padded.
    """
    lengths = getattr(cache, "lengths", None)
    return None if lengths is None else mx.clip(lengths, 0, columns)


def columns_before(x: mx.array, ends: mx.array, keep: int, axis: int = 1) -> mx.array:
    """``keep`` columns of each row that end at its own end.

    Args:
        x: ``keep`` columns from before the pass, then the pass's own, along ``axis``.
        ends: of each row, in columns of the pass.
    """
    shape = [1] * x.ndim
    shape[axis] = keep
    columns = mx.arange(keep).reshape(shape) + ends.reshape([-1] + [1] * (x.ndim - 1))
    return mx.take_along_axis(x, columns, axis=axis)


def where_inside(inside: mx.array, new: mx.array, old: mx.array | None) -> mx.array:
    """``new`` in the rows that have not ended yet, in others ``old`` or zeros."""
    rows = inside.reshape([-1] + [1] * (new.ndim - 1))
    return mx.where(rows, new, mx.zeros_like(new) if old is None else old)


def column_by_column(
    step: Callable[[slice], Sequence[mx.array]], cache: Any, ends: mx.array, columns: int
) -> list[mx.array]:
    """Run a recurrent layer over a padded pass; the states of a row that has ended stay.

    Args:
        step: the layer, for some columns; gives arrays ``[rows, columns, ...]``.
        cache: its states, which ``step`` changes.
        ends: of each row.

    Returns: what ``step`` gives, for all columns.
    """
    found = []
    for column in range(columns):
        before = list(cache.cache)
        found.append(step(slice(column, column + 1)))
        inside = column < ends
        for index, (old, new) in enumerate(zip(before, cache.cache, strict=True)):
            if new is not None:
                cache[index] = where_inside(inside, new, old)
    cache.advance(columns)
    return [mx.concatenate(list(parts), axis=1) for parts in zip(*found, strict=True)]


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
