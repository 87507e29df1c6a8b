"""Faults of the embeddings that a batch of prompts is prefilled with: another row's, or NaN."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mlx.core as mx

from conformance.backend.attributes import Attributes
from conformance.backend.module_hooks import aside
from conformance.backend.shared_faults import ATTENTION_MODULE, RECURRENT_MODULE, differs
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, after
from conformance.plugins.mlx_vlm.library_parts import part, prompt_class
from conformance.power.faults.mlx_vlm.tools import PADDED, mlx_vlm_fault

# Gets the embeddings [rows, columns, width] and each row's padding on the left.
Change = Callable[[mx.array, Sequence[int]], mx.array]


def _prefilled_with(change: Change, hits: Hits) -> Patch:
    """Batches of prompts are prefilled with ``change(embeddings, padding)``."""

    def exchange(_: None, batch: Any, *__: Any, **___: Any) -> None:
        right = batch._inputs_embeds
        if right is None or batch._right_pad_per_row is not None:
            return
        batch._inputs_embeds = change(right, batch._left_padding_per_row)
        hits.hit_if(differs(right, batch._inputs_embeds) and changes_output(batch, right))

    return after(prompt_class(), "__init__", exchange)


def changes_output(batch: Any, other: mx.array) -> bool:
    """Whether a batch of prompts has another output when its embeddings are the ``other`` ones.

    Some models embed the ids anew; some cut the padding off before they compute.
    """
    try:
        return differs(last_logits(batch, other), last_logits(batch, batch._inputs_embeds))
    except Exception:  # noqa: BLE001 - whatever the library raises; the run raises it, too
        return True


def last_logits(batch: Any, embeddings: mx.array) -> mx.array:
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
    noted = Attributes(model)
    try:
        yield
    finally:
        noted.restore()


@mlx_vlm_fault(
    "B13.embeddings-of-another-row",
    fault_class="list misalignment",
    source="mlx-vlm #1030",
    kills=("equal_length",),
    where="input:embeddings",
)
def embeddings_of_another_row(hits: Hits) -> Patch:
    """Rows in prefill are given each other's embeddings.

    Each row is embedded as the one before it, as far as that reaches.
    """

    def change(right: mx.array, padding: Sequence[int]) -> mx.array:
        rows = []
        for row, pad in enumerate(padding):
            start = max(pad, padding[row - 1])
            rows.append(mx.concatenate([right[row, :start], right[row - 1, start:]]))
        return mx.stack(rows)

    return _prefilled_with(change, hits)


@mlx_vlm_fault(
    "A2.nan-in-padding",
    fault_class="padding NaN",
    source="mlx-lm #1072",
    kills=("ragged",),
    where=f"{ATTENTION_MODULE}|{RECURRENT_MODULE}",
    needs=PADDED,
)
def nan_in_padding(hits: Hits) -> Patch:
    """Padded positions hold NaN, and the next full attention spreads it."""

    def change(right: mx.array, padding: Sequence[int]) -> mx.array:
        padded = mx.arange(right.shape[1])[None] < mx.array(list(padding))[:, None]
        return mx.where(padded[..., None], mx.array(mx.nan, right.dtype), right)

    return _prefilled_with(change, hits)
