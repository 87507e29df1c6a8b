"""What prompts are prefilled with: embeddings of another row, NaN, media in the wrong place."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import mlx.core as mx

from conformance.backend.module_hooks import aside
from conformance.backend.modules import Attributes
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, wrap
from conformance.plugins.mlx_vlm.library_parts import part, prompt_class
from conformance.power.faults.mlx_vlm.tools import MEDIUM, MROPE, PADDED, mlx_vlm_fault
from conformance.power.faults.shared_faults import ATTENTION_MODULE, RECURRENT_MODULE, differs

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


Rows = list[dict[str, Any]]
_medium = partial(
    mlx_vlm_fault,
    fault_class="multimodal",
    source="mlx-vlm #1055",
    kills=("images_together", "mixed_modality"),
    where="input:embeddings",
    needs=(MEDIUM,),
)
_place = partial(_medium, source="issue trackers")
_queue = partial(_medium, fault_class="list misalignment", source="mlx-vlm #1030")


def _places(ids: list[int], embeds: Any) -> list[int]:
    """The places of the first medium in a row of one prompt."""
    found: list[int] = []
    for at in range(1, len(ids)):
        if ids[at] != ids[at - 1] or ids[at] < 0:
            if found:
                break
            continue
        if bool((embeds[0, at] != embeds[0, at - 1]).any().item()):
            found = found or [at - 1]
            found.append(at)
    return found


def _rows(change: Callable[[Rows, list[list[int]]], None]) -> Patch:
    """``change`` gets copies of the rows' keyword arguments before they become a batch."""

    def merge(right: Right, rows: Any, ids: Any) -> Any:
        copies = [dict(row) for row in rows]
        change(copies, [[int(one) for one in row] for row in ids])
        return right(copies, ids)

    return wrap(part("generate.ar"), "_merge_prefill_prompt_kwargs", merge)


def _features(row: dict[str, Any], places: list[int]) -> Any:
    return row["inputs_embeds"][:, mx.array(places)]


def _put_wrong(row: dict[str, Any], places: list[int], features: Any, hits: Hits) -> None:
    # Rows that show the same have the same features.
    hits.hit_if(differs(features, _features(row, places)))
    embeds = mx.array(row["inputs_embeds"])
    embeds[:, mx.array(places)] = features
    row["inputs_embeds"] = embeds


def _shown(given: Rows, ids: list[list[int]]) -> list[tuple[dict[str, Any], list[int]]]:
    """The rows with a medium, and the places of their first."""
    placed = (
        (row, _places(tokens, row["inputs_embeds"])) for row, tokens in zip(given, ids, strict=True)
    )
    return [(row, places) for row, places in placed if places]


def _each(change: Callable[[Any], Any], hits: Hits) -> Patch:
    """The features of each row's first medium are ``change(features)``."""

    def rows(given: Rows, ids: list[list[int]]) -> None:
        for row, places in _shown(given, ids):
            _put_wrong(row, places, change(_features(row, places)), hits)

    return _rows(rows)


def _among(change: Callable[[list[Any]], list[Any]], hits: Hits) -> Patch:
    """Of the rows with a medium the features, cut to the smallest, are ``change(features)``."""

    def rows(given: Rows, ids: list[list[int]]) -> None:
        shown = _shown(given, ids)
        if len(shown) < 2:
            return
        least = min(len(places) for _, places in shown)
        features = [_features(row, places[:least]) for row, places in shown]
        for (row, places), new in zip(shown, change(features), strict=True):
            _put_wrong(row, places[:least], new, hits)

    return _rows(rows)


@_medium("C2.image-of-another-row")
def image_of_another_row(hits: Hits) -> Patch:
    """Of several rows with an image each is shown the next one's."""
    return _among(lambda rows: rows[1:] + rows[:1], hits)


@_medium("C2.features-of-the-whole-batch")
def features_of_the_whole_batch(hits: Hits) -> Patch:
    """The visual features of all rows are added at each row's image."""
    return _among(lambda rows: [sum(rows[1:], rows[0])] * len(rows), hits)


@_medium(
    "C3.deep-features-dropped",
    where="module:*Model",
    needs=("modality:image", "family:granite4_vision*|family:qwen3_vl*"),
)
def deep_features_dropped(hits: Hits) -> Patch:
    """Deep visual features are dropped where several rows are prefilled together.

    These are the features that deeper layers add.
    """

    def rows(given: Rows, _: list[list[int]]) -> None:
        for row in given:
            if len(given) > 1 and row.pop("deepstack_visual_embeds", None) is not None:
                hits.hit()

    return _rows(rows)


@_place("C3.first-image-token-dropped")
def first_image_token_dropped(hits: Hits) -> Patch:
    """The first token of an image is empty."""
    return _each(lambda f: mx.concatenate([mx.zeros_like(f[:, :1]), f[:, 1:]], 1), hits)


@_place("C3.last-image-token-dropped")
def last_image_token_dropped(hits: Hits) -> Patch:
    """The last token of an image is empty."""
    return _each(lambda f: mx.concatenate([f[:, :-1], mx.zeros_like(f[:, :1])], 1), hits)


@_place("B13.image-tokens-shifted")
def image_tokens_shifted(hits: Hits) -> Patch:
    """The tokens of an image stand one place to the right."""
    return _each(lambda f: mx.roll(f, 1, 1), hits)


@_place(
    "C3.place-of-an-earlier-image", source="a review: near twins", kills=("traffic_media/*_pairs",)
)
def place_of_an_earlier_image(hits: Hits) -> Patch:
    """Of prompts of one length, with media of one size, all are taken to have it at one place."""
    kept: dict[tuple[int, int], list[int]] = {}

    def rows(given: Rows, ids: list[list[int]]) -> None:
        for row, places in _shown(given, ids):
            embeds = row["inputs_embeds"]
            first = kept.setdefault((embeds.shape[1], len(places)), places)
            hits.hit_if(first != places)
            shown, others = iter(places), iter(sorted({*range(embeds.shape[1])} - {*places}))
            columns = [next(shown if at in first else others) for at in range(embeds.shape[1])]
            row["inputs_embeds"] = embeds[:, mx.array(columns)]

    return _rows(rows)


@_queue("B13.image-lost-in-the-queue")
def image_lost_in_the_queue(hits: Hits) -> Patch:
    """What the image was embedded as is lost before its prompt is prefilled."""
    return _each(mx.zeros_like, hits)


@_queue(
    "B13.arguments-of-another-row",
    where="module:*Model|module:*Rotary*|module:*RoPE",
    needs=(*MROPE, MEDIUM),
)
def arguments_of_another_row(hits: Hits) -> Patch:
    """Rows in prefill are given each other's keyword arguments.

    All but embeddings and position ids go to the next row.
    """

    def rows(given: Rows, _: list[list[int]]) -> None:
        names = {name for row in given for name in row} - {"inputs_embeds", "position_ids"}
        for name in names:
            right: list[Any] = [row.get(name) for row in given]
            if any(not isinstance(value, mx.array) for value in right) or len(right) < 2:
                continue
            for row, value, own in zip(given, right[-1:] + right[:-1], right, strict=True):
                if value.shape == own.shape and bool((value != own).any().item()):
                    hits.hit()
                    row[name] = value

    return _rows(rows)
