"""Defects of LongCat Flash: tokens that are chosen by an indexer, and hashed contexts."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, before, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm.library_parts import part


@mend("longcat-flash-sparse-positions-of-rows")
def rows_keep_tokens_by_their_own_positions(hits: Hits) -> Patch:
    """The first tokens and the last ones that are always kept are those of each row."""
    language = part("models.longcat_flash_sparse.language")

    def choose(right: Right, self: Any, x: Any, *args: Any, cache: Any = None) -> Any:
        padding: Any = getattr(cache, "left_padding", None)
        if padding is None:
            return right(self, x, *args, cache=cache)
        qr, mask = args
        new, start = x.shape[1], cache.offset + 0  # a copy, because the cache counts in place
        queries = self.wq_b(qr).reshape(*x.shape[:2], self.n_heads, self.head_dim).swapaxes(1, 2)
        keys = self.k_norm(self.wk(x))[:, None]
        queries, keys = (self.rope(each, offset=start) for each in (queries, keys))
        keys, _ = cache.update_and_fetch(keys, mx.zeros([*keys.shape[:3], 0]))
        if keys.shape[2] <= self.index_topk:
            return None
        hits.hit()
        weights = self.weights_proj(x) * (self.n_heads**-0.5 * self.softmax_scale)
        scores = mx.maximum(queries @ keys.swapaxes(-1, -2), 0)
        scores = (scores * weights.swapaxes(-1, -2)[..., None]).sum(axis=1, keepdims=True)
        position = (mx.arange(keys.shape[2]) - padding[:, None])[:, None]
        query = (start[:, None] + mx.arange(new))[..., None]
        kept = (position >= 0) & (position < self.index_init_tokens)
        kept = kept | ((position <= query) & (position > query - self.index_local_tokens))
        scores = mx.where(kept[:, None], float("inf"), scores)
        if mask is not None:
            scores = mx.where(mask, scores, -float("inf"))
        return mx.argpartition(scores, kth=-self.index_topk, axis=-1)[..., -self.index_topk :]

    return wrap(language.Indexer, "__call__", choose)


@mend("longcat-flash-sparse-context-of-padding")
def contexts_end_with_their_rows(hits: Hits) -> Patch:
    """The context of what comes next has its full width, and ends where each row does."""
    language = part("models.longcat_flash_sparse.language")

    def embed(right: Right, self: Any, ids: Any, cache: Any = None) -> Any:
        if cache is None:
            return right(self, ids, cache)
        old = cache[0]
        found = right(self, ids, cache)
        cache[0] = old
        hits.hit_if(_next_context(cache, ids, self.n - 1))
        return found

    return wrap(language.NgramEmbedding, "__call__", embed)


@mend("longcat-flash-ngram-context-of-prompt", single_stream=True)
def prompts_leave_a_context(hits: Hits) -> Patch:
    """The ids of a prompt that comes as embeddings are the context of what is generated.

    As above it has its full width, so that rows of any length can be joined, and ends where each
    row does.
    """
    language = part("models.longcat_flash_ngram.language")

    def keep(self: Any, ids: Any, inputs_embeds: Any = None, cache: Any = None) -> None:
        if inputs_embeds is None or ids is None or cache is None:
            return
        hits.hit()
        _next_context(cache[0], ids, self.ngram_embeddings.n - 1)

    return before(language.LongcatFlashNgramModel, "__call__", keep)


def _next_context(cache: Any, ids: Any, width: int) -> bool:
    """Keep the last ``width`` ids of each row; whether that is not simply the last columns."""
    rows, new = ids.shape
    old = mx.zeros((rows, 0), mx.int64) if cache[0] is None else cache[0]
    short = old.shape[1] + new < width
    old = mx.pad(old, [(0, 0), (width - old.shape[1], 0)])
    seen = mx.concatenate([old, ids.astype(mx.int64)], axis=1)
    ends = mx.full((rows,), new)
    if cache.lengths is not None:
        done = getattr(cache, "columns_done", 0)
        cache.columns_done = done + new
        ends = mx.clip(cache.lengths - done, 0, new)
    cache[0] = mx.take_along_axis(seen, ends[:, None] + mx.arange(width), axis=1)
    return short or bool((ends != new).any())
