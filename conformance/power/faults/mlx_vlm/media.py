"""Faults of what is put where an image stands, and of what else rows in prefill are given.

Where that is, is seen in the embeddings: a run of one token whose embeddings are not one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx

from conformance.backend.shared_faults import differs
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, wrap
from conformance.plugins.mlx_vlm.library_parts import part
from conformance.power.faults.mlx_vlm.tools import MEDIUM, MROPE, mlx_vlm_fault

Rows = list[dict[str, Any]]
_fault = partial(
    mlx_vlm_fault,
    fault_class="multimodal",
    source="mlx-vlm #1055",
    kills=("images_together", "mixed_modality"),
    where="input:embeddings",
    needs=(MEDIUM,),
)
_place = partial(_fault, source="issue trackers")
_queue = partial(_fault, fault_class="list misalignment", source="mlx-vlm #1030")


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


@_fault("C2.image-of-another-row")
def image_of_another_row(hits: Hits) -> Patch:
    """Of several rows with an image each is shown the next one's."""
    return _among(lambda rows: rows[1:] + rows[:1], hits)


@_fault("C2.features-of-the-whole-batch")
def features_of_the_whole_batch(hits: Hits) -> Patch:
    """The visual features of all rows are added at each row's image."""
    return _among(lambda rows: [sum(rows[1:], rows[0])] * len(rows), hits)


@_fault(
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
