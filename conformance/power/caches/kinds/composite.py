"""A cache that is a list of caches: each part is fed the same columns."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import mlx.core as mx

from conformance.power.caches.finding import Problems
from conformance.power.caches.kinds.kind import Kind
from conformance.power.caches.rows import Feed, Row


class Composite(Kind):
    """Kinds side by side in one cache."""

    def __init__(self, module: ModuleType, cls: type[Any], parts: Sequence[Kind]) -> None:
        self._parts = tuple(parts)
        super().__init__(module, cls)
        self.single = parts[0].single
        self.checks_size = all(part.checks_size for part in parts)

    def begin(self, dtype: str) -> None:
        """Reset each part."""
        super().begin(dtype)
        for part in self._parts:
            part.begin(dtype)

    def share(self, other: Kind) -> Kind:
        """Share each part with the other's part."""
        if isinstance(other, Composite):
            for mine, theirs in zip(self._parts, other._parts, strict=True):
                mine.share(theirs)
        return super().share(other)

    def new(self, padding: Sequence[int]) -> Any:
        """An empty cache with a row for each padding."""
        return self.cls(*(part.new(padding) for part in self._parts))

    @property
    def left_in_prepare(self) -> bool:
        """Whether all parts take padding on the left."""
        return all(part.left_in_prepare for part in self._parts)

    def partner(self) -> Kind:
        """The composite of all parts' partners."""
        return Composite(self.module, self.cls, [part.partner() for part in self._parts])

    def feed(self, cache: Any, feed: Feed) -> Problems:
        """Feed the parts one after the other."""
        for index, part in enumerate(self._parts):
            yield from part.feed(cache[index], feed)

    def offsets(self, cache: Any) -> list[int] | None:
        """The offsets of the first part that differs from the others, else of all parts."""
        every = [part.offsets(cache[index]) for index, part in enumerate(self._parts)]
        known = [offsets for offsets in every if offsets is not None]
        return next((one for one in known if one != known[0]), known[0] if known else None)

    def arrays(self, cache: Any) -> Any:
        """The arrays of all parts."""
        for index, part in enumerate(self._parts):
            yield from part.arrays(cache[index])

    def dtypes(self, cache: Any) -> set[mx.Dtype]:
        """The dtypes of all parts."""
        parts = enumerate(self._parts)
        return {dtype for index, part in parts for dtype in part.dtypes(cache[index])}

    def size_of(self, rows: Sequence[Row]) -> int:
        """The largest size of a part."""
        return max(part.size_of(rows) for part in self._parts)

    def facts(self, cache: Any) -> set[str]:
        """The facts of all parts."""
        parts = enumerate(self._parts)
        return {fact for index, part in parts for fact in part.facts(cache[index])}
