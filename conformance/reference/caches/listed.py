"""Several caches in one layer: ``CacheList`` of each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class RowwiseList:
    """A list of caches, each of which wraps the rows' caches at its index.

    Args:
        wrap: makes the batch cache for one index, of any kind.
    """

    def __init__(
        self,
        caches: Sequence[Any],
        lengths: Sequence[int],
        wrap: Callable[[Sequence[Any], Sequence[int]], Any],
    ) -> None:
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
