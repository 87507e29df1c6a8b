"""Faults of positions: what is rotated by which offset, in prefill, at decode, at a chunk's end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import mlx.core as mx

from conformance.core.faults.base import Hits, replaced
from conformance.core.faults.patching import differs
from conformance.plugins.mlx_vlm.faults.patching import (
    PADDED,
    batch_class,
    fault,
    padding,
    prompt_class,
)

_ROTATED = ("rope:RoPE*", *PADDED)


def _rope(change: Callable[[Any, Any], Any], hits: Hits) -> AbstractContextManager[None]:
    """The fast kernel rotates by ``change(x, offset)`` where offsets are given for each row."""
    real = mx.fast.rope

    def rope(x: Any, *args: Any, **options: Any) -> Any:
        offset = options.get("offset")
        if isinstance(offset, mx.array) and offset.size > 1:
            wrong = change(x, offset)
            if differs(wrong, offset):
                hits.hit()
            options["offset"] = wrong
        return real(x, *args, **options)

    return replaced(mx.fast, "rope", rope)


def _of_row_0(hits: Hits) -> AbstractContextManager[None]:
    return _rope(lambda _, offset: mx.broadcast_to(offset[:1], offset.shape), hits)


def _of_row_0_at_decode(hits: Hits) -> AbstractContextManager[None]:
    def change(x: Any, offset: Any) -> Any:
        return mx.broadcast_to(offset[:1], offset.shape) if x.shape[-2] == 1 else offset

    return _rope(change, hits)


@contextlib.contextmanager
def _padded(owner: Any, methods: tuple[str, ...], sign: int, hits: Hits) -> Iterator[None]:
    """While one of the methods runs, positions are off by ``sign`` times the row's padding."""
    at: list[Any] = [None]

    def inside(real: Any) -> Any:
        def method(self: Any, *args: Any, **options: Any) -> Any:
            at[0] = padding(self.prompt_cache)
            try:
                return real(self, *args, **options)
            finally:
                at[0] = None

        return method

    def change(_: Any, offset: Any) -> Any:
        fits = at[0] is not None and at[0].shape == offset.shape
        return offset + sign * at[0] if fits else offset

    with contextlib.ExitStack() as stack:
        for name in methods:
            stack.enter_context(replaced(owner, name, inside(getattr(owner, name))))
        stack.enter_context(_rope(change, hits))
        yield


def _padding_twice(hits: Hits) -> AbstractContextManager[None]:
    return _padded(batch_class(), ("_step",), -1, hits)


def _columns_at_prefill(hits: Hits) -> AbstractContextManager[None]:
    return _padded(prompt_class(), ("prompt_step", "generate"), 1, hits)


def _mrope_columns_at_prefill(hits: Hits) -> AbstractContextManager[None]:
    """Position ids of the prompt count the padding; the deltas that decode uses do not."""
    real = prompt_class().__init__

    def init(self: Any, *args: Any, **options: Any) -> None:
        real(self, *args, **options)
        ids = self._prompt_kwargs.get("position_ids")
        pads = mx.array(self._left_padding_per_row)
        if ids is not None and pads.any().item():
            hits.hit()
            self._prompt_kwargs["position_ids"] = ids + pads[:, None].astype(ids.dtype)

    return replaced(prompt_class(), "__init__", init)


def _of_the_slice(hits: Hits) -> AbstractContextManager[None]:
    """The first chunk's positions are counted anew, as if no image were in it."""
    real = prompt_class()._prompt_kwargs_for_step

    def for_step(self: Any, n: int | None = None) -> Any:
        kwargs = dict(real(self, n))
        ids = kwargs.get("position_ids")
        if ids is not None and n is not None and not self._processed_prompt_columns:
            pads = mx.array(self._left_padding_per_row)[:, None]
            counted = mx.broadcast_to(mx.arange(n)[None] - pads, ids.shape).astype(ids.dtype)
            counted = mx.where(mx.arange(n)[None] < pads, ids, counted)
            if differs(counted, ids):
                hits.hit()
            kwargs["position_ids"] = counted
        return kwargs

    return replaced(prompt_class(), "_prompt_kwargs_for_step", for_step)


def _boundary(from_step: int, hits: Hits) -> AbstractContextManager[None]:
    """The next chunk begins ``from_step`` tokens from where it should."""
    real = prompt_class().prompt_step

    def prompt_step(self: Any) -> Any:
        ids, embeds, kwargs = self._input_ids, self._inputs_embeds, dict(self._prompt_kwargs)
        done = real(self)
        # The last token stays alone in any case: that is no chunk's boundary.
        if done > 1 and self._input_ids.shape[1] > 1:
            hits.hit()
            start = done + from_step
            self._input_ids, self._inputs_embeds = ids[:, start:], embeds[:, start:]
            for name in self._prompt_length_aware_keys:
                axis = 2 if kwargs[name].ndim == 3 and name == "position_ids" else 1
                at = (slice(None),) * axis + (slice(start, None),)
                self._prompt_kwargs[name] = kwargs[name][at]
        return done

    return replaced(prompt_class(), "prompt_step", prompt_step)


def _twice(hits: Hits) -> AbstractContextManager[None]:
    return _boundary(-1, hits)


def _skipped(hits: Hits) -> AbstractContextManager[None]:
    return _boundary(1, hits)


FAULTS = (
    fault(
        "B14.rope-offset-of-row-0",
        "scalar/array dispatch",
        "mlx-vlm #1030",
        "all rows are rotated by row 0's offset, as `offset.item()` of it would",
        _of_row_0,
        # In one batch from the start that shifts each row as a whole, which no attention sees.
        kills="staggered",
        where="module:*RoPE|module:*Rotary*",
        needs=_ROTATED,
    ),
    fault(
        "F12.rope-wrong-at-one-token",
        "rope kernel",
        "issue trackers",
        "the fast kernel rotates a single token of each row by row 0's offset",
        _of_row_0_at_decode,
        kills="ragged",
        where="module:*RoPE|module:*Rotary*",
        needs=_ROTATED,
    ),
    fault(
        "C1.padding-twice",
        "rope position",
        "mlx-vlm #1055",
        "at decode the padding is taken off an offset that never held it",
        _padding_twice,
        kills="ragged",
        where="module:*RoPE|module:*Rotary*",
        needs=_ROTATED,
    ),
    fault(
        "C4.columns-at-prefill",
        "rope position",
        "mlx-vlm #1055",
        "prefill counts padding in its positions, decode does not",
        _columns_at_prefill,
        kills="ragged",
        where="module:*RoPE|module:*Rotary*",
        needs=_ROTATED,
    ),
    fault(
        "C4.mrope-columns-at-prefill",
        "rope position",
        "mlx-vlm #1055",
        "M-RoPE positions of the prompt count padding, those of decode do not",
        _mrope_columns_at_prefill,
        kills="ragged",
        where="module:*RoPE|module:*Rotary*",
        needs=("rope:M-RoPE",),
    ),
    fault(
        "B11.first-chunk-without-the-image",
        "rope position",
        "mlx-vlm #1030",
        "the first chunk counts its positions from the slice, without the image's extent",
        _of_the_slice,
        kills="images_together mixed_modality media_in_pieces",
        where="module:*RoPE|module:*Rotary*",
        needs=("rope:M-RoPE", "modality:image|modality:video"),
    ),
    fault(
        "F13.boundary-token-twice",
        "chunk",
        "issue trackers",
        "the last token of a chunk of prefill is the first of the next one too",
        _twice,
        kills="chunked",
        where="input:tokens",
    ),
    fault(
        "F13.boundary-token-skipped",
        "chunk",
        "issue trackers",
        "the first token after a chunk of prefill is left out",
        _skipped,
        kills="chunked",
        where="input:tokens",
    ),
)
