"""Recurrent and convolution states: ``ArraysCache`` of each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache

from conformance.reference.caches import layout


class RowwiseArrays(ArraysCache):
    """Stacks states when the pass begins and splits them when it ends.

    This is a subclass because models check ``isinstance``. ``lengths`` shows a model where each
    row's tokens end; it stays unset if all rows have one length, to avoid a needless gather.
    A new row has zeros where others have a state: the initial state of all models except one
    (``mlx_lm/models/recurrent_gemma.py:157``).
    """

    def __init__(self, caches: Sequence[Any], lengths: Sequence[int]) -> None:
        super().__init__(len(caches[0].cache))
        self._caches = caches
        for index in range(len(self.cache)):
            self[index] = _stack([cache[index] for cache in caches])
        if len(set(lengths)) > 1:
            # int32 [rows]; by name, as the library's class says that it is always unset.
            setattr(self, "lengths", mx.array(list(lengths)))  # noqa: B010

    @property
    def batch_size(self) -> int:
        """The number of rows of the pass."""
        return len(self._caches)

    def commit(self) -> None:
        """Give each row its part of the states after the pass."""
        for row, cache in enumerate(self._caches):
            for index in range(len(self.cache)):
                states = self[index]
                if states is not None:
                    cache[index] = layout.own(states, row)  # [1, ...]


def _stack(states: Sequence[mx.array | None]) -> mx.array | None:
    """The rows' ``[1, ...]`` as ``[rows, ...]``; ``None`` if no row has a state yet."""
    known = next((state for state in states if state is not None), None)
    if known is None:
        return None
    return mx.concatenate([mx.zeros_like(known) if s is None else s for s in states])
