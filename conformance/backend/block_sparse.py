"""Block-sparse attention as Phi-3-small has it in both libraries, repaired for batches."""

from __future__ import annotations

import threading
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, together, wrap


def blocks_of_positions(attention: type, hits: Hits) -> Patch:
    """The causal mask hides the keys where it is false, and blocks are cut over positions.

    Args:
        attention: the class of a layer's attention, called with the layer's input, its mask and
            its cache.
    """
    scope = threading.local()

    def call(right: Right, self: Any, x: mx.array, mask: Any = None, cache: Any = None) -> Any:
        scope.cache = cache
        return right(self, x, mask, cache)

    def attend(right: Right, self: Any, queries: Any, *keys: Any, scale: Any, mask: Any) -> Any:
        if mask is not None:
            hits.hit()
            least = mx.array(mx.finfo(queries.dtype).min, queries.dtype)
            mask = mx.where(mask, mx.array(0, queries.dtype), least)
            # Rows, kv heads, heads of each, queries, keys.
            mask = mask[:, :, None] if mask.ndim == 4 else mask
        return right(self, queries, *keys, scale=scale, mask=mask)

    def block_mask(_: Right, self: Any, columns: int, width: int) -> Any:
        first, key = _positions(scope.cache, columns, width)
        query = (first[:, None] + mx.arange(columns)) // self.blocksparse_block_size
        behind = query[:, :, None] - (key // self.blocksparse_block_size)[:, None]
        head = mx.arange(1, self.n_heads + 1)[:, None, None]
        block = (key // self.blocksparse_block_size)[:, None, None]
        strided = (block + head) % self.blocksparse_vert_stride == 0
        near = (behind < self.blocksparse_num_local_blocks)[:, None]
        seen = (behind >= 0)[:, None] & (near | strided)
        return None, seen.reshape(-1, self.n_kv_heads, self.n_q_per_kv, columns, width)

    return together(
        wrap(attention, "__call__", call),
        wrap(attention, "_block_sparse_attention", attend),
        wrap(attention, "_block_sparse_mask", block_mask),
    )


def _positions(cache: Any, columns: int, width: int) -> tuple[mx.array, mx.array]:
    """The first query's position ``[rows]`` and those of all keys ``[rows, width]``.

    Args:
        width: number of keys that it returned.
        width: of the keys that it gave back.
    """
    if cache is None:
        return mx.array([0]), mx.arange(width)[None]
    end = mx.array(cache.offset).reshape(-1)
    key = mx.arange(width)[None]
    if hasattr(cache, "commit"):  # the reference engine's: a row's keys begin in column 0
        kept = mx.array([row.kept for row in cache._rows])
        return end - columns, key + (end - columns - kept)[:, None]
    # Rotating caches write the newest key in the middle, behind the first ones that they keep.
    keep = getattr(cache, "keep", 0)
    newest = width - 1
    if hasattr(cache, "max_size"):
        newest = cache._idx - 1
    age = (newest - key) % (width - keep)
    return end - columns, mx.where(key < keep, key, end[:, None] - 1 - age)
