"""Faults of what is put where an image stands, and of what else rows in prefill are given.

Where that is, is seen in the embeddings: a run of one token whose embeddings are not one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import mlx.core as mx

from conformance.core.faults.base import Hits, replaced
from conformance.core.faults.patching import differs
from conformance.plugins.mlx_vlm.faults.patching import fault, part

_CLASS = "multimodal"
_IMAGE = ("modality:image|modality:video|modality:audio",)
_MERGE = "_merge_prefill_prompt_kwargs"
Rows = list[dict[str, Any]]


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


def _rows(change: Callable[[Rows, list[list[int]]], None]) -> AbstractContextManager[None]:
    """``change`` gets copies of the rows' keyword arguments before they become a batch."""
    owner = part("generate.ar")
    real = getattr(owner, _MERGE)

    def merge(rows: Any, ids: Any) -> Any:
        copies = [dict(row) for row in rows]
        change(copies, [[int(one) for one in row] for row in ids])
        return real(copies, ids)

    return replaced(owner, _MERGE, merge)


def _put_wrong(row: dict[str, Any], places: list[int], features: Any, hits: Hits) -> None:
    # Rows that show the same have the same features.
    if differs(features, _features(row, places)):
        hits.hit()
    embeds = mx.array(row["inputs_embeds"])
    embeds[:, mx.array(places)] = features
    row["inputs_embeds"] = embeds


def _features(row: dict[str, Any], places: list[int]) -> Any:
    return row["inputs_embeds"][:, mx.array(places)]


def _each(change: Callable[[Any], Any], hits: Hits) -> AbstractContextManager[None]:
    """The features of each row's first medium are ``change(features)``."""

    def rows(given: Rows, ids: list[list[int]]) -> None:
        for row, tokens in zip(given, ids, strict=True):
            places = _places(tokens, row["inputs_embeds"])
            if places:
                _put_wrong(row, places, change(_features(row, places)), hits)

    return _rows(rows)


def _among(change: Callable[[list[Any]], list[Any]], hits: Hits) -> AbstractContextManager[None]:
    """Of the rows with a medium the features, cut to the smallest, are ``change(features)``."""

    def rows(given: Rows, ids: list[list[int]]) -> None:
        shown = [
            (row, places)
            for row, tokens in zip(given, ids, strict=True)
            if (places := _places(tokens, row["inputs_embeds"]))
        ]
        if len(shown) < 2:
            return
        least = min(len(places) for _, places in shown)
        features = [_features(row, places[:least]) for row, places in shown]
        for (row, places), new in zip(shown, change(features), strict=True):
            _put_wrong(row, places[:least], new, hits)

    return _rows(rows)


def _first_dropped(hits: Hits) -> AbstractContextManager[None]:
    return _each(lambda f: mx.concatenate([mx.zeros_like(f[:, :1]), f[:, 1:]], 1), hits)


def _last_dropped(hits: Hits) -> AbstractContextManager[None]:
    return _each(lambda f: mx.concatenate([f[:, :-1], mx.zeros_like(f[:, :1])], 1), hits)


def _shifted(hits: Hits) -> AbstractContextManager[None]:
    return _each(lambda f: mx.roll(f, 1, 1), hits)


def _lost(hits: Hits) -> AbstractContextManager[None]:
    return _each(mx.zeros_like, hits)


def _of_another(hits: Hits) -> AbstractContextManager[None]:
    return _among(lambda rows: rows[1:] + rows[:1], hits)


def _of_all(hits: Hits) -> AbstractContextManager[None]:
    return _among(lambda rows: [sum(rows[1:], rows[0])] * len(rows), hits)


def _arguments_of_another(hits: Hits) -> AbstractContextManager[None]:
    """All but embeddings and position ids go to the next row."""

    def rows(given: Rows, ids: list[list[int]]) -> None:
        del ids
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


def _deep_dropped(hits: Hits) -> AbstractContextManager[None]:
    """The features that deeper layers add are left out where there are several rows."""

    def rows(given: Rows, ids: list[list[int]]) -> None:
        del ids
        for row in given:
            if len(given) > 1 and row.pop("deepstack_visual_embeds", None) is not None:
                hits.hit()

    return _rows(rows)


FAULTS = (
    fault(
        "C2.image-of-another-row",
        _CLASS,
        "mlx-vlm #1055",
        "of several rows with an image each is shown the next one's",
        _of_another,
        kills="images_together mixed_modality",
        where="input:embeddings",
        needs=_IMAGE,
    ),
    fault(
        "C2.features-of-the-whole-batch",
        _CLASS,
        "mlx-vlm #1055",
        "the visual features of all rows are added at each row's image",
        _of_all,
        kills="images_together mixed_modality",
        where="input:embeddings",
        needs=_IMAGE,
    ),
    fault(
        "C3.deep-features-dropped",
        _CLASS,
        "mlx-vlm #1055",
        "deep visual features are dropped where several rows are prefilled together",
        _deep_dropped,
        kills="images_together mixed_modality",
        where="module:*Model",
        needs=("modality:image", "family:granite4_vision*|family:qwen3_vl*"),
    ),
    fault(
        "C3.first-image-token-dropped",
        _CLASS,
        "issue trackers",
        "the first token of an image is empty",
        _first_dropped,
        kills="images_together mixed_modality",
        where="input:embeddings",
        needs=_IMAGE,
    ),
    fault(
        "C3.last-image-token-dropped",
        _CLASS,
        "issue trackers",
        "the last token of an image is empty",
        _last_dropped,
        kills="images_together mixed_modality",
        where="input:embeddings",
        needs=_IMAGE,
    ),
    fault(
        "B13.image-tokens-shifted",
        _CLASS,
        "issue trackers",
        "the tokens of an image stand one place to the right",
        _shifted,
        kills="images_together mixed_modality",
        where="input:embeddings",
        needs=_IMAGE,
    ),
    fault(
        "B13.image-lost-in-the-queue",
        "list misalignment",
        "mlx-vlm #1030",
        "what the image was embedded as is lost before its prompt is prefilled",
        _lost,
        kills="images_together mixed_modality",
        where="input:embeddings",
        needs=_IMAGE,
    ),
    fault(
        "B13.arguments-of-another-row",
        "list misalignment",
        "mlx-vlm #1030",
        "rows in prefill are given each other's keyword arguments",
        _arguments_of_another,
        kills="images_together mixed_modality",
        where="module:*Model|module:*Rotary*|module:*RoPE",
        needs=("rope:M-RoPE", *_IMAGE),
    ),
)
