"""Keys and values of attention: of all tokens, of MLA's latents, of a window, in fewer bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx.utils import tree_map

from conformance.reference.caches import layout
from conformance.reference.caches.layout import Row


class RowwiseKeys:
    """``KVCache`` or ``ConcatenateKVCache`` of each row.

    MLA's latents go through here too: they are keys and values of one head.

    Attributes:
        offset: int32 ``[rows]``, the position of each row's first new token; after an
            update it is larger by the columns of the pass, as in a single stream.
        keys: the result of the last update; ``values`` likewise.
    """

    def __init__(self, caches: Sequence[Any], lengths: Sequence[int]) -> None:
        self._caches = caches
        self._rows = tuple(
            Row(self._kept(cache), new) for cache, new in zip(caches, lengths, strict=True)
        )
        self.offset = mx.array([cache.offset for cache in caches])
        self.keys: Any = None
        self.values: Any = None

    @staticmethod
    def _kept(cache: Any) -> int:
        """The number of keys from before the pass that a row's new tokens can see."""
        return int(cache.offset)

    def _fetched(self, cache: Any, fetched: tuple[Any, Any]) -> tuple[Any, Any]:  # noqa: ARG002
        """Keys and values of the row's cache, in the order of time."""
        return fetched

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Any, Any]:
        """Append new tokens to each row's cache, without padding.

        Args:
            keys: ``[rows, heads, length, dim]``; ``values`` likewise.

        Returns: keys and values, ``[rows, heads, width, dim]`` each; for quantized caches, three
            arrays each.
        """
        length = keys.shape[2]
        columns = layout.width(self._rows)
        parts = []
        for index, (cache, row) in enumerate(zip(self._caches, self._rows, strict=True)):
            mine = slice(index, index + 1)
            # Only real tokens: [1, heads, new, dim] each.
            new = (keys[mine, :, : row.new], values[mine, :, : row.new])
            fetched = self._fetched(cache, cache.update_and_fetch(*new))
            parts.append(tree_map(lambda x: layout.pad(x, columns), fetched))
        self.keys, self.values = tree_map(lambda *rows: mx.concatenate(list(rows)), *parts)
        self.offset = self.offset + length
        return self.keys, self.values

    def keys_and_values(self) -> tuple[Any, Any]:
        """The result of the last update, for layers that share it."""
        return self.keys, self.values

    def make_mask(
        self,
        N: int,  # noqa: N803 - the library's name
        return_array: bool = False,  # noqa: ARG002, FBT001, FBT002
        window_size: int | None = None,
    ) -> mx.array:
        """Bool ``[rows, 1, N, width]``; see ``layout.mask``."""
        return layout.mask(self._rows, N, window_size or self._window())

    def _window(self) -> int | None:
        """Columns that a query sees if the model does not pass a window."""
        return None

    def commit(self) -> None:
        """Do nothing: the rows' caches were updated in the pass."""

    @property
    def state(self) -> list[Any]:
        """The states of the rows' own caches."""
        return [cache.state for cache in self._caches if not cache.empty()]

    def empty(self) -> bool:
        """Whether all rows are empty."""
        return all(cache.empty() for cache in self._caches)


class RowwiseWindow(RowwiseKeys):
    """``RotatingKVCache`` of each row.

    The mask is made from columns instead of positions, like in the single stream: with ``keep``
    the first columns are older than the window.
    """

    @staticmethod
    def _kept(cache: Any) -> int:
        stored = 0 if cache.empty() else min(cache.offset, cache.keys.shape[2])
        # One token overwrites the oldest; several are appended to the keys that the first one sees.
        return int(min(stored, cache.max_size - 1))

    def _fetched(self, cache: Any, fetched: tuple[Any, Any]) -> tuple[Any, Any]:  # noqa: ARG002
        # The ring's own order would put each row's keys into different columns. The method is
        # private, as no public one returns where the ring begins.
        return cache._temporal_order(cache.keys), cache._temporal_order(cache.values)

    def _window(self) -> int | None:
        return int(self._caches[0].max_size)


class RowwiseQuantized(RowwiseKeys):
    """``QuantizedKVCache`` of each row: codes, scales and biases are split and stacked alike.

    Attributes:
        bits: read by the model's attention; ``group_size`` likewise.
    """

    def __init__(self, caches: Sequence[Any], lengths: Sequence[int]) -> None:
        super().__init__(caches, lengths)
        self.bits = caches[0].bits
        self.group_size = caches[0].group_size
