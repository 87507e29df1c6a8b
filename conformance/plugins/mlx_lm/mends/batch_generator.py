"""Defects of `BatchGenerator`, and of the caches that the server keeps between requests."""

from __future__ import annotations

import importlib
from typing import Any

import mlx.core as mx
from mlx_lm.models import cache as caches

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, before, together, wrap
from conformance.core.mends import mend

# The attribute `mlx_lm.generate` is the function of the same name.
_generate: Any = importlib.import_module("mlx_lm.generate")
_SIZES = ("completion_batch_size", "prefill_batch_size", "prefill_step_size")


@mend("batch-generator-sizes")
def sizes_are_positive(hits: Hits) -> Patch:
    """A batch size or a prefill step below 1 is refused."""

    def check(*_: Any, **options: Any) -> None:
        wrong = [name for name in _SIZES if options.get(name, 1) < 1]
        hits.hit_if(wrong)
        if wrong:
            raise ValueError(f"{wrong[0]} must be at least 1")

    return before(_generate.BatchGenerator, "__init__", check)


@mend("batch-generator-unknown-uid")
def unknown_uids_are_refused(hits: Hits) -> Patch:
    """A uid that was never given out is refused."""

    def check(self: Any, uids: Any, *_: Any, **__: Any) -> None:
        unknown = [uid for uid in uids if not 0 <= uid < self._uid_count]
        hits.hit_if(unknown)
        if unknown:
            raise KeyError(f"there is no request {unknown[0]}")

    return together(
        before(_generate.BatchGenerator, "remove", check),
        before(_generate.BatchGenerator, "extract_cache", check),
    )


@mend("finished-caches-hold-the-batch")
def finished_caches_are_computed(hits: Hits) -> Patch:
    """The cache that comes with a finishing response is computed, and holds its own row alone."""

    def computed(found: Any, *_: Any) -> Any:
        hits.hit()
        mx.eval([cache.state for cache in found])
        return found

    return after(_generate.GenerationBatch, "extract_cache", computed)


@mend("server-exact-prompt")
def a_kept_prompt_leaves_a_token(hits: Hits) -> Patch:
    """Of a prompt that is kept as a whole the last token is computed again, and more if it must."""

    def fetch(right: Right, self: Any, model: Any, tokens: list[int]) -> Any:
        cache, rest = right(self, model, tokens)
        if cache is None or rest:
            return cache, rest
        hits.hit()
        if not caches.can_trim_prompt_cache(cache):
            cache, rest = right(self, model, tokens[:-1])
            return cache, [*rest, tokens[-1]]
        caches.trim_prompt_cache(cache, 1)
        return cache, tokens[-1:]

    return wrap(caches.LRUPromptCache, "fetch_nearest_cache", fetch)
