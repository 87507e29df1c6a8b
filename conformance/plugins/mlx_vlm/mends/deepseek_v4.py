"""Pooled keys of DeepSeek-V4."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_vlm.models.cache import PoolingCache

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, together, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm.library_parts import part


@mend("deepseek-v4-overlap-between-pieces", single_stream=True)
def the_window_before_is_kept(hits: Hits) -> Patch:
    """The first pooled key of a call overlaps with the last window of the call before.

    The cache keeps what the next window needs behind each pooled key, so that it goes wherever
    the key goes.
    """
    module = part("models.deepseek_v4.language")

    def compress(right: Right, self: Any, x: mx.array, cache: Any, offset: Any) -> Any:
        if cache is None or not self.overlap:
            return right(self, x, cache, offset)
        width, ratio = self.head_dim, self.compress_ratio
        before = _last_window(cache, x.shape[0], ratio, width, x.dtype)
        kv, gate, base = cache.accumulate_windows(self.wkv(x), self.wgate(x), offset)
        count = kv.shape[1] // ratio
        shape = (x.shape[0], count, ratio, 2 * width)
        kv, gate = kv.reshape(shape), gate.reshape(shape)
        parts = [part[..., :width].reshape(*shape[:2], ratio * width) for part in (kv, gate)]
        if count:
            hits.hit_if(cache.pooled is not None)
            joined = [
                mx.concatenate([old, new], axis=1)
                for old, new in zip(before, (kv, gate), strict=True)
            ]
            pooled = module._overlap_compress_kv(*joined, self.ape, width)[:, 1:]
            pooled = self.rope(self.norm(pooled)[:, None], offset=base).squeeze(1)
        else:
            pooled = mx.zeros((x.shape[0], 0, width), x.dtype)
        return cache.update_and_fetch(mx.concatenate([pooled, *parts], axis=-1))[..., :width]

    return wrap(module.Compressor, "__call__", compress)


def _last_window(
    cache: Any, rows: int, ratio: int, width: int, dtype: mx.Dtype
) -> tuple[mx.array, ...]:
    """The keys and gates of each row's last window, or values of no weight if there is none."""
    shape = (rows, 1, ratio, 2 * width)
    nothing = mx.zeros(shape, dtype), mx.full(shape, -mx.inf, dtype)
    if cache.pooled is None:
        return nothing
    lengths = getattr(cache, "_pool_lengths", [cache.pooled.shape[1]] * rows)
    ends = mx.array(lengths)[:, None, None]
    last = mx.take_along_axis(cache.pooled, mx.maximum(ends - 1, 0), axis=1)
    kept = last[..., width:].reshape(rows, 2, ratio, width)
    # Only the first half of each vector of the previous window is used.
    kv, gate = (mx.concatenate([kept[:, i : i + 1]] * 2, axis=-1) for i in range(2))
    return tuple(
        mx.where(ends[..., None] > 0, some, none)
        for some, none in zip((kv, gate), nothing, strict=True)
    )


@mend("deepseek-v4-future-without-cache", single_stream=True)
def the_future_is_masked_without_a_cache(hits: Hits) -> Patch:
    """Without a cache pooled keys of later tokens are masked as with an empty one."""
    module = part("models.deepseek_v4.language")

    def attend(right: Right, self: Any, *args: Any) -> Any:
        *others, cache, offset = args
        if cache is None:
            hits.hit()
            cache = [None, PoolingCache(self.compress_ratio), PoolingCache(self.compress_ratio)]
        return right(self, *others, cache, offset)

    owners = (module.CompressedAttention, module.SparseCompressedAttention)
    return together(*(wrap(owner, "_attend", attend) for owner in owners))
