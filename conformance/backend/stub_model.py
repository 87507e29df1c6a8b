"""A language model of a few lines, and its right output for a single row, in numpy.

The model has one layer of attention for each cache. Its logits depend on each token that a row may
see and on the token's position, so a wrong mask, offset or row shows in them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np

VOCAB, SIZE = 24, 64
# Small, so that each token has an effect.
_SCALE = 0.06
_draw = np.random.default_rng(11)
EMBEDDINGS: np.ndarray = _draw.normal(0, 1, (VOCAB, SIZE)).astype(np.float32)
_LAYERS = 3
_WEIGHTS = _draw.normal(0, SIZE**-0.5, (_LAYERS, 3, SIZE, SIZE)).astype(np.float32)
_HEAD = _draw.normal(0, SIZE**-0.5, (SIZE, VOCAB)).astype(np.float32) * 3
# Angles of positions: no two of the first few thousand positions are alike.
_ANGLES = _draw.uniform(0.05, 1.5, SIZE).astype(np.float32)


class Call(NamedTuple):
    """The arguments of a call of the model."""

    tokens: list[list[int]]
    options: dict[str, Any]


class StubModel:
    """Attention over the contents of caches.

    Attributes:
        calls: the calls, in order.
    """

    def __init__(
        self,
        base: ModuleType,
        make_cache: Callable[[], list[Any]],
        windows: Sequence[int | None] = (None,),
    ) -> None:
        """``base`` has the library's masks and attention; ``windows`` are the layers' windows."""
        self.calls: list[Call] = []
        self.layers = list(windows)
        self.make_cache = make_cache
        self._base = base

    def __call__(
        self,
        tokens: mx.array,
        cache: Sequence[Any] = (),
        inputs_embeds: mx.array | None = None,
        **options: Any,
    ) -> Any:
        """Logits of each column, an attribute of the output."""
        self.calls.append(Call(np.array(tokens).tolist(), options))
        hidden = mx.array(EMBEDDINGS)[tokens] if inputs_embeds is None else inputs_embeds
        columns = tokens.shape[1]
        begin = mx.array(cache[0].offset).reshape(-1, 1)
        at = begin + mx.arange(columns)[None]
        if (given := options.get("position_ids")) is not None:
            at = given[0] if given.ndim == 3 else given
        elif (deltas := options.get("rope_deltas")) is not None:
            at = at + deltas
        placed = mx.cos(at[..., None].astype(mx.float32) * mx.array(_ANGLES))
        total: Any = 0.0
        for layer, (entry, window) in enumerate(zip(cache, self.layers, strict=True)):
            to_query, to_key, to_value = (mx.array(w) for w in _WEIGHTS[layer])
            query, key = (((hidden + placed) @ to)[:, None] for to in (to_query, to_key))
            mask = self._base.create_attention_mask(
                hidden, entry, window_size=window, return_array=True
            )
            key, value = entry.update_and_fetch(key, (hidden @ to_value)[:, None])
            total = total + self._base.scaled_dot_product_attention(
                query, key, value, entry, scale=_SCALE, mask=mask
            )
        logits = total[:, 0] @ mx.array(_HEAD)
        return SimpleNamespace(logits=logits)


def logits_alone(
    hidden: np.ndarray, positions: np.ndarray, windows: Sequence[int | None] = (None,)
) -> np.ndarray:
    """The logits after the last token of a row.

    Args:
        hidden: the embedding of each token.
    """
    placed, total = hidden + np.cos(positions[:, None] * _ANGLES), 0.0
    for (to_query, to_key, to_value), window in zip(_WEIGHTS, windows, strict=False):
        seen = slice(-window if window else None, None)
        scores = (placed[seen] @ to_key) @ (placed[-1] @ to_query) * _SCALE
        shares = np.exp(scores - scores.max())
        total = total + (shares / shares.sum()) @ (hidden[seen] @ to_value)
    return np.asarray(total @ _HEAD)


def logprobs_of(logits: np.ndarray) -> np.ndarray:
    """The logarithms of the logits' softmax."""
    high = logits.max()
    return np.asarray(logits - high - np.log(np.exp(logits - high).sum()))
