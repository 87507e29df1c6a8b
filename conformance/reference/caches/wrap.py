"""Chooses the batch cache for each kind of cache, and which rows may share a pass."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models import cache as library
from mlx_lm.models.cache import ArraysCache

from conformance.backend.cache_entries import leaves
from conformance.reference.caches import even, layout
from conformance.reference.caches.keys import RowwiseKeys, RowwiseQuantized, RowwiseWindow


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


_KINDS = {
    "KVCache": RowwiseKeys,
    "ConcatenateKVCache": RowwiseKeys,
    "RotatingKVCache": RowwiseWindow,
    "QuantizedKVCache": RowwiseQuantized,
    "ArraysCache": RowwiseArrays,
}
# A release may lack a kind.
KINDS: Mapping[type, type] = {
    kind: rowwise for name, rowwise in _KINDS.items() for kind in even.kinds(name)
}


def wrap(caches: Sequence[Any], lengths: Sequence[int]) -> Any:
    """One layer's batch cache around the caches of its rows.

    Args:
        caches: the cache of each row, all of one kind.
        lengths: the number of new tokens of each row in this pass.
    """
    if type(caches[0]) is library.CacheList:
        return RowwiseList(caches, lengths)
    return KINDS[type(caches[0])](caches, lengths)


class RowwiseList:
    """``CacheList`` of each row: a list of caches, each of which wraps those at its index."""

    def __init__(self, caches: Sequence[Any], lengths: Sequence[int]) -> None:
        places = zip(*(cache.caches for cache in caches), strict=True)
        self.caches = tuple(wrap(place, lengths) for place in places)

    def __getitem__(self, index: int) -> Any:
        return self.caches[index]

    def commit(self) -> None:
        """Commit each cache of the list."""
        for cache in self.caches:
            cache.commit()

    @property
    def state(self) -> list[Any]:
        """The states of the rows' own caches."""
        return [cache.state for cache in self.caches if not cache.empty()]

    def empty(self) -> bool:
        """Whether all rows are empty."""
        return all(cache.empty() for cache in self.caches)


def must_be_even(caches: Sequence[Any]) -> bool:
    """Whether some layer of a row's ``caches`` can only be stacked with rows of equal history."""
    return any(type(leaf) not in KINDS for leaf in leaves(caches))


def history(caches: Sequence[Any]) -> tuple[Hashable, ...]:
    """The values that must be equal in rows that can only be stacked."""
    return tuple(even.numbers(leaf) for leaf in leaves(caches))


def signature(caches: Sequence[Any]) -> tuple[str, ...]:
    """The kinds of caches of a row: rows with different kinds cannot share a pass."""
    return tuple(type(leaf).__name__ for leaf in leaves(caches))


def shapes(caches: Sequence[Any]) -> tuple[tuple[int, ...] | None, ...]:
    """The shapes of a row's recurrent states; ``None`` for a state not set yet, which fits any."""
    states = [leaf.cache for leaf in leaves(caches) if isinstance(leaf, library.ArraysCache)]
    return tuple(None if s is None else tuple(s.shape) for own in states for s in own)
