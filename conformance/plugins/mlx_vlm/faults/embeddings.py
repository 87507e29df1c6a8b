"""Faults of the embeddings that a batch of prompts is prefilled with: another row's, or NaN."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import mlx.core as mx

from conformance.backend.attributes import Attributes
from conformance.backend.module_hooks import aside
from conformance.core.faults.base import Hits, replaced
from conformance.core.faults.patching import differs
from conformance.plugins.mlx_vlm.faults.patching import PADDED, fault, part, prompt_class

# Gets the embeddings [rows, columns, width] and each row's padding on the left.
Change = Callable[[mx.array, Sequence[int]], mx.array]


def _given(change: Change, hits: Hits) -> AbstractContextManager[None]:
    """Batches of prompts are prefilled with ``change(embeddings, padding)``."""
    real = prompt_class().__init__

    def init(self: Any, *args: Any, **options: Any) -> None:
        real(self, *args, **options)
        if self._inputs_embeds is None or self._right_pad_per_row is not None:
            return
        right = self._inputs_embeds
        self._inputs_embeds = change(right, self._left_padding_per_row)
        if differs(right, self._inputs_embeds) and heard(self, right):
            hits.hit()

    return replaced(prompt_class(), "__init__", init)


def heard(batch: Any, other: mx.array) -> bool:
    """Whether a batch of prompts says something else when its embeddings are the ``other`` ones.

    Some models embed the ids anew; some cut the padding off before they compute.
    """
    try:
        return differs(said(batch, other), said(batch, batch._inputs_embeds))
    except Exception:  # noqa: BLE001 - whatever the library raises; the run raises it, too
        return True


def said(batch: Any, embeddings: mx.array) -> mx.array:
    """A batch of prompts' last logits ``[rows, vocab]`` with these embeddings; leaves no trace."""
    model = batch.model
    cache = part("generate.ar")._make_cache(model, list(batch._left_padding_per_row))
    given = {"cache": cache, "inputs_embeds": embeddings, **batch._prompt_kwargs}
    with _untouched(model), aside():
        output = _unmetered(model).__call__(model, batch._input_ids, **given)
        last: mx.array = getattr(output, "logits", output)[:, -1]
        mx.eval(last)
    return last


def _unmetered(model: Any) -> Any:
    """The model's own class, below the one that notes its calls for the trace."""
    kind, base = type(model).__mro__[:2]
    return base if base.__name__ == kind.__name__ else kind


@contextlib.contextmanager
def _untouched(model: Any) -> Iterator[None]:
    """What the model notes on itself inside, it has forgotten afterwards."""
    before = Attributes(model)
    try:
        yield
    finally:
        before.restore()


def _of_another(hits: Hits) -> AbstractContextManager[None]:
    """Each row is embedded as the one before it, as far as that reaches."""

    def change(right: mx.array, padding: Sequence[int]) -> mx.array:
        rows = []
        for row, pad in enumerate(padding):
            start = max(pad, padding[row - 1])
            rows.append(mx.concatenate([right[row, :start], right[row - 1, start:]]))
        return mx.stack(rows)

    return _given(change, hits)


def _nan_in_padding(hits: Hits) -> AbstractContextManager[None]:
    def change(right: mx.array, padding: Sequence[int]) -> mx.array:
        padded = mx.arange(right.shape[1])[None] < mx.array(list(padding))[:, None]
        return mx.where(padded[..., None], mx.array(mx.nan, right.dtype), right)

    return _given(change, hits)


FAULTS = (
    fault(
        "B13.embeddings-of-another-row",
        "list misalignment",
        "mlx-vlm #1030",
        "rows in prefill are given each other's embeddings",
        _of_another,
        kills="equal_length",
        where="input:embeddings",
    ),
    fault(
        "A2.nan-in-padding",
        "padding NaN",
        "mlx-lm #1072",
        "padded positions hold NaN, and the next full attention spreads it",
        _nan_in_padding,
        kills="ragged",
        where="module:*ttention|module:*amba*|module:*Mixer|module:*DeltaNet*",
        needs=PADDED,
    ),
)
