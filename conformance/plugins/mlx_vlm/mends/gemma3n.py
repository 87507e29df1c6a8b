"""Defects of Gemma 3n: its handling of padding, of prompts, and of layers that share keys."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, replace, together, wrap
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm.library_parts import part

# The smallest normal number of float16, which the other dtypes can hold too.
_SMALLEST = 6.2e-5


def _module(name: str) -> Any:
    return part(f"models.gemma3n.{name}")


@mend("gemma3n-padding-is-nan")
def magnitudes_have_a_positive_bound(hits: Hits) -> Patch:
    """The magnitudes that are divided by have a small positive number as their lower bound."""

    class Bounded:
        """``mlx.core`` as the module sees it: the bound is a float, all else are arrays."""

        def __getattr__(self, name: str) -> Any:
            return getattr(mx, name)

        def maximum(self, values: Any, bound: Any) -> mx.array:
            if isinstance(bound, float) and bound == mx.finfo(values.dtype).min:
                hits.hit_if(bool((values == 0).any()))
                bound = _SMALLEST
            return mx.maximum(values, bound)

    return replace(_module("language"), "mx", Bounded())


@mend("gemma3n-prompt-not-scaled", single_stream=True)
def prompts_are_scaled(hits: Hits) -> Patch:
    """Embeddings of a prompt's tokens are scaled by the root of the hidden size, as others are."""
    scaled: list[Any] = []

    def embed(right: Right, self: Any, ids: Any) -> Any:
        found = right(self, ids)
        if not any(self is each for each in scaled):
            return found
        hits.hit()
        return found * found.shape[-1] ** 0.5

    @contextlib.contextmanager
    def scaling(table: Any) -> Iterator[None]:
        scaled.append(table)
        try:
            yield
        finally:
            scaled.pop()

    def embeddings(right: Right, self: Any, *args: Any, **options: Any) -> Any:
        with scaling(self.language_model.model.embed_tokens):
            return right(self, *args, **options)

    return together(
        wrap(_module("language").nn.Embedding, "__call__", embed),
        wrap(_module("gemma3n").Model, "get_input_embeddings", embeddings),
    )


@mend("gemma3n-shared-layers", single_stream=True)
def shared_keys_are_as_their_layer_saw_them(hits: Hits) -> Patch:
    """Layers that share keys rotate by the offset from before, and share without a cache too."""
    language = _module("language")

    def attend(right: Right, self: Any, x: Any, mask: Any = None, cache: Any = None) -> Any:
        if self.is_kv_shared_layer and cache is not None and not isinstance(cache, _Handed):
            hits.hit()
            cache = _Before(cache, x.shape[1])
        return right(self, x, mask, cache)

    def called(right: Right, self: Any, *args: Any, **options: Any) -> Any:
        if options.get("cache") is None:
            hits.hit()
            options["cache"] = [_Handed() for _ in range(self.first_kv_shared_layer_idx)]
        return right(self, *args, **options)

    return together(
        wrap(language.Gemma3nAttention, "__call__", attend),
        wrap(language.Gemma3Model, "__call__", called),
    )


class _Before:
    """A cache to which another layer has added the new tokens, with the offset before them."""

    def __init__(self, cache: Any, new: int) -> None:
        self._cache, self.offset = cache, cache.offset - new

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    @property  # type: ignore[misc]  # attention asks isinstance which quantized cache it is
    def __class__(self) -> Any:
        return type(self._cache)


class _Handed:
    """Keys and values of one pass without a cache, handed to the layers that share them."""

    offset = 0
    state: tuple[Any, Any] = (None, None)

    def update_and_fetch(self, keys: Any, values: Any) -> tuple[Any, Any]:
        self.state = (keys, values)
        return self.state
