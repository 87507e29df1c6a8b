"""Recurrent layers whose states run over a row's padding."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx_vlm.models import ssm

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, before, together, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm.library_parts import part

# The arguments of a call for one token.
Part = Callable[[Any, int], Any]


def own_tokens(cache: Any, columns: int) -> mx.array | None:
    """Which of the next columns are each row's own tokens; ``None`` if all are.

    ``make_mask`` looks at the padding on the left alone, where a batch has both.
    """
    column, valid = mx.arange(columns), None
    if cache.left_padding is not None:
        valid = column >= cache.left_padding[:, None]
    if cache.lengths is not None:
        ended = column < cache.lengths[:, None]
        valid = ended if valid is None else valid & ended
    return None if valid is None or mx.all(valid).item() else valid


def chosen(rows: mx.array, new: mx.array, old: mx.array | None) -> mx.array:
    """The new states of these rows, and the old ones of the others."""
    rows = rows.reshape(-1, *[1] * (new.ndim - 1))
    return mx.where(rows, new, mx.zeros_like(new) if old is None else old)


def _token_by_token(
    hits: Hits, layer: Callable[..., Any], cache: Any, columns: int, part: Part
) -> Any:
    """The layer's outputs, where its states go on only at a row's own tokens."""
    valid = own_tokens(cache, columns)
    if valid is None:
        found = layer(lambda of: of)
    else:
        hits.hit()
        outputs = []
        for at in range(columns):
            before = list(cache.cache)
            outputs.append(layer(lambda of, at=at: part(of, at)))
            cache.cache = [
                chosen(valid[:, at], new, old) for new, old in zip(cache.cache, before, strict=True)
            ]
        found = _joined(outputs)
    cache.advance(columns)
    return found


def _joined(outputs: list[Any]) -> Any:
    if isinstance(outputs[0], tuple):
        return tuple(mx.concatenate(list(parts), axis=1) for parts in zip(*outputs, strict=True))
    return mx.concatenate(outputs, axis=1)


def _token(of: Any, at: int) -> Any:
    """One column of an array; an offset is that of the column, and all else is left alone."""
    if isinstance(of, mx.array) and of.ndim > 1:
        return of[:, at : at + 1]
    return of


def _layers(hits: Hits, module: str, name: str) -> Patch:
    """The mended layers of a model, ``layer(x, ..., cache)``."""
    owner = getattr(part(f"models.{module}.language"), name)

    def layer(right: Right, self: Any, x: mx.array, *args: Any, **options: Any) -> Any:
        caches = [arg for arg in (*args, *options.values()) if hasattr(arg, "advance")]
        if not caches:
            return right(self, x, *args, **options)

        def run(part: Callable[[Any], Any]) -> Any:
            named = {name: part(option) for name, option in options.items()}
            return right(self, part(x), *map(part, args), **named)

        return _token_by_token(hits, run, caches[0], x.shape[1], _token)

    return wrap(owner, "__call__", layer)


def _linear_attention(hits: Hits) -> Patch:
    """Of ``bailing_moe_linear``, whose positions are an argument."""
    owner = part("models.bailing_moe_linear.language").LinearAttention

    def layer(right: Right, self: Any, x: mx.array, mask: Any, cache: Any, *, offset: Any) -> Any:
        if cache is None:
            return right(self, x, mask, cache, offset=offset)
        return _token_by_token(
            hits,
            lambda part: right(self, part(x), None, cache, offset=part(offset)),
            cache,
            x.shape[1],
            lambda of, at: of[:, at : at + 1] if of is x else of + at,
        )

    return wrap(owner, "__call__", layer)


def _convolutions_of_keys(hits: Hits) -> Patch:
    """Of ``baichuan_m1``: nothing before the first token, and the last own key and value after."""
    owner = part("models.baichuan_m1.language").Attention
    call = threading.local()

    def convolved(right: Right, self: Any, u: mx.array, weights: Any, state: Any = None) -> Any:
        if call.valid is not None:
            u = mx.where(call.valid[:, None, :, None], u, 0)
        call.seen.append(u)
        return right(self, u, weights, state)

    def attention(right: Right, self: Any, x: mx.array, mask: Any = None, cache: Any = None) -> Any:
        call.valid, call.seen = None, []
        if cache is None or cache[0] is None:
            return right(self, x, mask, cache)
        states, columns = cache[0], x.shape[1]
        call.valid, old = own_tokens(states, columns), list(states.cache)
        found = right(self, x, mask, cache)
        if call.valid is not None:
            hits.hit()
            pairs = zip(call.seen, old, strict=True)
            states.cache = [last_own(call.valid, *pair) for pair in pairs]
        states.advance(columns)
        return found

    return together(
        wrap(owner, "__call__", attention), wrap(owner, "_custom_convolution", convolved)
    )


def last_own(valid: mx.array, new: mx.array, old: mx.array | None) -> mx.array:
    """The last own column of each row, ``[row, head, column, value]``; else what was before."""
    columns = mx.arange(valid.shape[1])
    last = mx.max(mx.where(valid, columns, -1), axis=1)
    index = mx.maximum(last, 0)[:, None, None, None]
    return chosen(last >= 0, mx.take_along_axis(new, index, axis=2), old)


def _first_tokens(hits: Hits) -> Patch:
    """Of ``recurrent_gemma``: a row whose states are zero is at its first token."""
    owner = part("models.recurrent_gemma.language").RGLRU

    def unit(right: Right, self: Any, x: mx.array, cache: Any = None) -> Any:
        if cache is None:
            return right(self, x)
        started = mx.any(cache != 0, axis=-1)
        if mx.all(started).item():
            return right(self, x, cache)
        hits.hit()
        pairs = zip(right(self, x, cache), right(self, x), strict=True)
        return tuple(chosen(started, later, first) for later, first in pairs)

    return wrap(owner, "__call__", unit)


@mend("apc-recurrent-gemma-first-token")
def first_tokens_are_not_scaled(hits: Hits) -> Patch:
    """The first token of each row is not scaled, also beside rows that go on."""
    return _first_tokens(hits)


@mend("bailing-moe-linear-offset-in-place")
def offsets_stay_those_of_the_call(hits: Hits) -> Patch:
    """The attention cache counts on in a new array, so that all layers of a call use one offset."""
    owner = part("models.bailing_moe_linear.language").Attention

    def renewed(*args: Any) -> None:
        cache = args[-1]
        if isinstance(getattr(cache, "offset", None), mx.array):
            hits.hit()
            cache.offset = cache.offset + 0

    return before(owner, "__call__", renewed)


@mend("recurrent-state-of-padded-rows", "recurrent-state-of-padded-rows-quantized")
def states_skip_the_padding(hits: Hits) -> Patch:
    """States and convolutions go on at a row's own tokens only."""
    return together(
        _layers(hits, "jamba", "JambaMambaMixer"),
        _layers(hits, "mamba", "MambaBlock"),
        _layers(hits, "recurrent_gemma", "RecurrentBlock"),
        _layers(hits, "rwkv7", "Rwkv7Layer"),
        _linear_attention(hits),
        _convolutions_of_keys(hits),
        # Its padded rows have states of zeros before their first token.
        _first_tokens(Hits()),
    )


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
    module = part("models.zaya1_vl.language")
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
