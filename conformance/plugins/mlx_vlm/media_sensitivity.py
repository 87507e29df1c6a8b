"""The sensitivity of a vision-language model to small defects, in text and around its media."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.backend import sensitivity_measure as text_signals
from conformance.backend.checkpoint import library_errors
from conformance.core.schedule import Media, Request
from conformance.core.sensitivity import Sensitivity, Signal, change
from conformance.plugins.mlx_vlm.inputs import Part, compose, embed, inputs_of, text_model
from conformance.plugins.mlx_vlm.model import LoadedModel

_STEPS = 6
_BEFORE, _AFTER = 3, 5
# The most places of a medium to leave out, one at a time; if it has more, evenly spaced ones.
_MOST_PLACES = 24


def measure(loaded: LoadedModel) -> Sensitivity:
    """The sensitivity of a model to defects of its text and of each kind of media.

    Raises:
        Unsupported: the library says that this machine cannot run the model.
        ModelError: the library failed to run the model.
    """
    found = text_signals.measure(text_model(loaded))
    signals = list(found.signals)
    for kind in loaded.family.facts.modalities:
        if kind != "text":
            with library_errors(loaded.family, f"running an {kind}"):
                signals += _media(loaded, kind)
    return dataclasses.replace(found, signals=tuple(signals))


def _media(loaded: LoadedModel, kind: str) -> Iterator[Signal]:
    size = loaded.family.facts.sizes[kind][0]
    right = _request(loaded, Media(kind, size))
    kwargs = embed(loaded.fresh(), inputs_of(loaded, right))
    tokens: list[int] = []
    reference = _run(loaded, right, kwargs, tokens)
    other = _request(loaded, Media(kind, size, content=1))
    swapped = embed(loaded.fresh(), inputs_of(loaded, other))
    nats = change(reference, _run(loaded, other, swapped, tokens))
    yield Signal("media", f"another {kind}", nats)
    (media,) = right.media
    made = {n: v for n, v in kwargs.items() if n not in inputs_of(loaded, right).extra}
    wrong = ({**kwargs, **one} for one in _dropped(made, swapped, media.span))
    dropped = [change(reference, _run(loaded, right, one, tokens)) for one in wrong]
    yield Signal("media", f"a token of the {kind} missing", min(dropped, default=0.0))
    if "position_ids" in kwargs:
        shifted = _later(kwargs, media.span[1])
        nats = change(reference, _run(loaded, right, shifted, tokens))
        yield Signal("media", f"text after the {kind} one position later", nats)


def _request(loaded: LoadedModel, media: Media) -> Request:
    low, high = loaded.family.tokens
    span = np.arange(_BEFORE + _AFTER) * 7919 % (high - low) + low
    words = tuple(int(token) for token in span)
    parts: list[Part] = [words[:_BEFORE], media, words[_BEFORE:]]
    prompt, placed = compose(loaded, parts)
    return Request("sensitivity", prompt, _STEPS, media=placed)


def _run(
    loaded: LoadedModel, request: Request, kwargs: dict[str, Any], tokens: list[int]
) -> np.ndarray:
    """Logprobs ``[steps, vocab]`` after the prompt; ``tokens`` are fed, missing ones chosen."""
    cache = loaded.cache()
    embed(loaded, inputs_of(loaded, request))  # sets the state that models keep
    if "rope_deltas" in kwargs and hasattr(loaded.language_model, "_rope_deltas"):
        loaded.language_model._rope_deltas = kwargs["rope_deltas"]
    if (
        "position_ids" in kwargs
        and getattr(loaded.language_model, "_position_ids", None) is not None
    ):
        loaded.language_model._position_ids = kwargs["position_ids"]
    ids = mx.array(request.prompt, mx.int32)[None]
    output = loaded.language_model(ids, cache=cache, **kwargs)
    rows = [output.logits[0, -1]]
    for step in range(_STEPS - 1):
        if step == len(tokens):
            tokens.append(int(np.array(rows[-1].astype(mx.float32)).argmax()))
        # Arguments that ``generate_step`` passes on from one step to the next.
        kept = {n: getattr(output, n, None) for n in ("cross_attention_states", "encoder_outputs")}
        kept = {name: value for name, value in kept.items() if value is not None}
        output = loaded.language_model(mx.array([[tokens[step]]]), cache=cache, **kept)
        rows.append(output.logits[0, -1])
    table = mx.stack(rows).astype(mx.float32)
    table = table - mx.logsumexp(table, axis=-1, keepdims=True)
    return np.array(table).astype(np.float64)


def _dropped(
    kwargs: dict[str, Any], swapped: dict[str, Any], span: tuple[int, int]
) -> Iterator[dict[str, Any]]:
    """An argument in which one place where the two media differ is replaced by the mean of all.

    The mean is used instead of zeros because some models divide by the norm of a place.

    Places are the last axis but one of embeddings, deep visual features, and the states that
    cross attention reads. For a medium without places in the prompt, all places of the embeddings
    are used.
    """
    for name, value in kwargs.items():
        layers, others = _layers(value), _layers(swapped.get(name))
        if not layers or [x.shape for x in layers] != [x.shape for x in others]:
            continue
        differs = mx.any(
            mx.stack([mx.any(x != o, axis=-1) for x, o in zip(layers, others, strict=True)]), axis=0
        )
        places: Any = np.array(differs.reshape(-1, differs.shape[-1])).any(axis=0)
        if name == "inputs_embeds" and span[0] < span[1]:
            places[: span[0]] = places[span[1] :] = False
        differing = np.flatnonzero(places).tolist()
        for place in differing[:: -(-len(differing) // _MOST_PLACES) or 1]:
            keep = (mx.arange(layers[0].shape[-2]) != place)[:, None]
            kept = [mx.where(keep, x, x.mean(axis=-2, keepdims=True)) for x in layers]
            yield {name: kept if isinstance(value, list) else kept[0]}
        if differing:
            return


def _layers(value: Any) -> list[mx.array]:
    """An argument's arrays if all have one shape: a single array, or one for each layer."""
    found = value if isinstance(value, list) else [value]
    arrays = [x for x in found if isinstance(x, mx.array) and x.ndim > 1]
    same = len(arrays) == len(found) and len({x.shape for x in arrays}) == 1
    return arrays if same else []


def _later(kwargs: dict[str, Any], end: int) -> dict[str, Any]:
    """The arguments with positions after the medium increased by one."""
    positions = kwargs["position_ids"]
    later = (mx.arange(positions.shape[-1]) >= end).astype(positions.dtype)
    return {**kwargs, "position_ids": positions + later}
