"""Rows without keys that are joined to others."""

from __future__ import annotations

from typing import Any

from mlx_vlm.models.cache import BatchKVCache, BatchRotatingKVCache

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, together, wrap
from conformance.core.mends import mend


@mend("extend-of-empty-keys-widens")
def joined_keys_keep_their_dtype(hits: Hits) -> Patch:
    """A row without keys does not widen those of the others."""

    def extend(right: Right, self: Any, other: Any) -> None:
        filled = [cache for cache in (self, other) if cache.keys is not None]
        dtype = filled[0].keys.dtype if len(filled) == 1 else None
        right(self, other)
        if dtype is not None and self.keys.dtype != dtype:
            hits.hit()
            self.keys, self.values = self.keys.astype(dtype), self.values.astype(dtype)

    return together(
        *(wrap(cache, "extend", extend) for cache in (BatchKVCache, BatchRotatingKVCache))
    )
