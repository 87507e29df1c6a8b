"""Which of mlx-lm's shared code a model runs: known defects are looked up by it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import BatchKVCache, make_prompt_cache

from conformance.backend.cache_entries import leaves
from conformance.backend.code_traits import filled, parts

_PROMPTS = ((1, 2, 3), (1, 2, 3, 4, 5))
_FURTHER = 3


def code_traits(model: Any) -> frozenset[str]:
    """``part:``, ``last:``, ``unfilled:``, ``keys:uneven`` and ``offset:unread``.

    The last means that no position is computed from the offsets of a batch cache of keys.
    """
    cache = make_prompt_cache(model)
    model(mx.array([_PROMPTS[0]]), cache=cache)
    return parts(model, "mlx_lm") | frozenset(filled(cache)) | frozenset(_unread(model))


def _unread(model: Any) -> Iterator[str]:
    try:
        right = _step(model)
        for place, entry in enumerate(leaves(_batch(model))):
            moved = isinstance(entry, BatchKVCache) and _step(model, further=place)
            if moved is not False and mx.array_equal(moved, right).item():
                yield "offset:unread"
                return
    except Exception:  # noqa: BLE001 - a model that takes no batch at all has other defects
        return


def _batch(model: Any) -> list[Any]:
    rows = []
    for prompt in _PROMPTS:
        row = make_prompt_cache(model)
        mx.eval(model(mx.array([prompt]), cache=row))
        rows.append(row)
    return [type(one).merge([one, other]) for one, other in zip(*rows, strict=True)]


def _step(model: Any, *, further: int | None = None) -> mx.array:
    """The logits of one step of both rows, with the offset of one cache increased."""
    batch = _batch(model)
    if further is not None:
        entry = list(leaves(batch))[further]
        entry.offset = entry.offset + _FURTHER
    logits: mx.array = model(mx.array([[2], [4]]), cache=batch)
    return logits
