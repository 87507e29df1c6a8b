"""Defects that several engines had, and the places that they break."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, replace, together, wrap

# Places, as named by `conformance explain`.
OUTPUT = "input:tokens|output:*"
ROTATION = "module:*RoPE|module:*Rotary*"
ATTENTION_MODULE = "module:*ttention"
RECURRENT_MODULE = "module:*amba*|module:*Mixer|module:*DeltaNet*"


def differs(one: Any, other: Any) -> bool:
    """Whether two arrays, or two lists, differ."""
    if isinstance(one, mx.array) and isinstance(other, mx.array):
        return not mx.array_equal(one, other).item()
    return bool(one != other)


def rotated_at(change: Callable[[mx.array, mx.array], mx.array], hits: Hits) -> Patch:
    """Rotate rows at ``change(x, offsets)``, where ``x`` is rotated at the rows' offsets.

    The patch is in a function that all layers call, so it affects only arrays that are rotated.
    """

    def rope(right: Right, x: mx.array, *args: Any, offset: Any, **options: Any) -> Any:
        if isinstance(offset, mx.array) and offset.ndim == 1:
            wrong = change(x, offset)
            hits.hit_if(differs(wrong, offset))
            offset = wrong
        return right(x, *args, offset=offset, **options)

    return wrap(mx.fast, "rope", rope)


def of_row_0(values: mx.array) -> mx.array:
    """The first row's value in all rows."""
    return mx.broadcast_to(values[:1], values.shape)


def states_in_half_precision(owner: type, hits: Hits) -> Patch:
    """A batch keeps its float32 states in bfloat16; a single stream keeps them as they are."""

    def put(right: Right, self: Any, index: int, value: Any) -> None:
        if isinstance(value, mx.array) and value.shape[0] > 1 and value.dtype == mx.float32:
            hits.hit()
            value = value.astype(mx.bfloat16)
        right(self, index, value)

    return wrap(owner, "__setitem__", put)


def padding_lost_where_lengths_meet(owner: type, hits: Hits) -> Patch:
    """Rows that join as many columns as they have need no more padding, and lose their own."""

    def extend(right: Right, self: Any, other: Any) -> None:
        stored = self.keys is not None and other.keys is not None
        if stored and self._idx == other._idx and other.left_padding.any().item():
            hits.hit()
            other.left_padding = mx.zeros_like(other.left_padding)
        right(self, other)

    return wrap(owner, "extend", extend)


def no_processors_after(batch: type, none: Any, hits: Hits) -> Patch:
    """Once the last row with processors has left a batch, rows that join get ``none`` of theirs."""

    def filter_rows(right: Right, self: Any, keep: Sequence[int]) -> None:
        had = any(self.logits_processors)
        right(self, keep)
        if had and keep and not any(self.logits_processors):
            self._without = True

    def extend(right: Right, self: Any, other: Any) -> None:
        if self.uids and getattr(self, "_without", False) and any(other.logits_processors):
            hits.hit()
            other.logits_processors = [none] * len(other.uids)
        right(self, other)

    return together(wrap(batch, "filter", filter_rows), wrap(batch, "extend", extend))


def masked_with(score: float, hits: Hits) -> Patch:
    """Keys that a boolean mask leaves out get ``score`` in place of minus infinity."""

    def attend(right: Right, q: mx.array, *args: Any, mask: Any = None, **options: Any) -> Any:
        if isinstance(mask, mx.array) and mask.dtype == mx.bool_:
            hits.hit_if(not mask.all().item())
            mask = mx.where(mask, 0.0, score).astype(q.dtype)
        return right(q, *args, mask=mask, **options)

    return wrap(mx.fast, "scaled_dot_product_attention", attend)


def kept_by_place(batch: type, name: str, hits: Hits) -> Patch:
    """When rows leave a batch, the first entries of its ``name`` stay, not its rows' entries."""

    def filter_rows(right: Right, self: Any, keep: Sequence[int]) -> None:
        entries = getattr(self, name)
        wrong = None if entries is None else entries[: len(keep)]
        right(self, keep)
        if wrong is not None and keep:
            hits.hit_if(differs(wrong, getattr(self, name)))
            setattr(self, name, wrong)

    return wrap(batch, "filter", filter_rows)


def nucleus_of_all_rows(module: Any, hits: Hits) -> Patch:
    """The narrowest nucleus of all rows bounds the tokens of each row."""

    def apply_top_p(right: Right, logprobs: mx.array, top_p: float) -> mx.array:
        apart: mx.array = right(logprobs, top_p)
        least = mx.where(apart == -mx.inf, mx.inf, apart).min(axis=-1).max()
        wrong = mx.where(logprobs < least, -mx.inf, logprobs)
        hits.hit_if(differs(wrong, apart))
        return wrong

    return wrap(module, "apply_top_p", apply_top_p)


def length_as_stop(responses: Sequence[Any], hits: Hits) -> None:
    """Requests that reached their limit are reported as stopped."""
    for response in responses:
        if response.finish_reason == "length":
            hits.hit()
            response.finish_reason = "stop"


def ring_as_line(rotating: type, hits: Hits) -> Patch:
    """A rotating cache that was overwritten is extracted as if its oldest token came first."""

    def extract(right: Right, self: Any, idx: int) -> Any:
        size = self.keys.shape[2]
        if not self.rotated or self._idx == size:
            return right(self, idx)
        hits.hit()
        with replace(self, "rotated", False), replace(self, "_idx", size):
            return right(self, idx)

    return wrap(rotating, "extract", extract)
