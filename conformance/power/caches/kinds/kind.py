"""The interface of a kind of cache."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from conformance.power.caches.finding import Problems
from conformance.power.caches.rows import Array, Feed, Row, TokenIndex

DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}


def as_numpy(array: mx.array) -> Array:
    """The array in float32, which is exact for the numbers that these tests write."""
    return np.asarray(array.astype(mx.float32))


class Kind(ABC):
    """Makes, feeds and reads a class under test; verbs that the class lacks are not tried."""

    single = False
    """Whether it holds only one row: the cache of a single stream."""
    blocks = True
    """Whether several tokens may be fed at once to a cache with content."""
    joins_while_prepared = False
    """Whether rows may join between prepare and finalize."""
    leaves_while_prepared = False
    """Whether rows may leave between prepare and finalize."""
    checks_size = True

    def __init__(self, module: ModuleType, cls: type[Any]) -> None:
        self.module = module
        self.cls = cls
        self.dtype = mx.float32
        self.index = self.new_index()

    def begin(self, dtype: str) -> None:
        """Reset, before a new sequence of verbs."""
        self.dtype = DTYPES[dtype]
        self.index = self.new_index()

    def share(self, other: Kind) -> Kind:
        """Share dtype and tokens with ``other``, with which rows are exchanged."""
        other.dtype, other.index = self.dtype, self.index
        return other

    def new_index(self) -> TokenIndex:
        """An index of vectors; a kind that changes vectors when it stores them overrides this."""
        return TokenIndex()

    @abstractmethod
    def new(self, padding: Sequence[int]) -> Any:
        """An empty cache with a row for each number of columns of padding on the left."""

    @abstractmethod
    def partner(self) -> Kind:
        """The single-stream kind of a batch kind, or the batch kind of a single-stream kind."""

    def merged(self, caches: Sequence[Any]) -> Any:
        """One batch cache merged from several single-stream caches."""
        return self.cls.merge(list(caches))

    def has(self, verb: str) -> bool:
        """Whether the class has this verb."""
        return callable(getattr(self.cls, verb, None))

    @property
    def left_in_prepare(self) -> bool:
        """Whether prepare() takes padding on the left."""
        return self.has("prepare")

    @abstractmethod
    def feed(self, cache: Any, feed: Feed) -> Problems:
        """Update the cache; returns the problems of the result."""

    def offsets(self, cache: Any) -> list[int] | None:
        """Each row's next position; None if the kind has no offsets."""
        offset: Any = cache.offset
        values: Any = offset.tolist() if isinstance(offset, mx.array) else [offset]
        return [int(one) for one in values]

    def fed(self, cache: Any) -> bool:
        """Whether the cache has arrays of its own."""
        return any(True for _ in self.arrays(cache))

    def arrays(self, cache: Any) -> Iterator[mx.array]:
        """The arrays of contents, without bookkeeping arrays, which have one axis."""
        seen = set()
        leaves: Any = tree_flatten(vars(cache))
        for _, value in leaves:
            if isinstance(value, mx.array) and value.ndim > 1 and id(value) not in seen:
                seen.add(id(value))
                yield value

    def held(self, cache: Any) -> int:
        """Bytes of all contents."""
        return sum(array.nbytes for array in self.arrays(cache))

    def dtypes(self, cache: Any) -> set[mx.Dtype]:
        """The floating dtypes of the contents."""
        floats = set(DTYPES.values())
        return {array.dtype for array in self.arrays(cache) if array.dtype in floats}

    def size_of(self, rows: Sequence[Row]) -> int:
        """The least that size() may return."""
        return max(len(row) for row in rows)

    def is_whole(self, rows: Sequence[Row]) -> bool:  # noqa: ARG002
        """Whether all tokens of all rows must be kept, so that the last can be cut off."""
        return False

    def facts(self, cache: Any) -> set[str]:
        """The state of the cache that a defect may depend on."""
        return {"rotated"} if getattr(cache, "rotated", False) else set()
