"""Quantized keys and values: each row's own caches, quantized by the library's own class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlx_lm.models.cache import CacheList, KVCache

from conformance.backend.cache_entries import floating, leaves
from conformance.core.engine_options import KvQuant
from conformance.core.errors import Unsupported
from conformance.core.trace import CachedLayer


def from_the_start(caches: Sequence[Any], kv: KvQuant, prompt_length: int) -> list[Any]:
    """A row's caches, quantized if its prompt is not shorter than ``kv.start``.

    Raises:
        Unsupported: a scheme other than ``uniform``, or no layer that keeps all its keys.
    """
    if kv.scheme != "uniform" or kv.bits != int(kv.bits):
        raise Unsupported(f"quantization {kv.scheme} with {kv.bits} bits is not supported")
    if not any(type(leaf) is KVCache for leaf in leaves(caches)):
        raise Unsupported("no layer keeps keys and values that could be quantized: not supported")
    if prompt_length < kv.start:
        return list(caches)
    return [_quantized(cache, kv) for cache in caches]


def described(caches: Sequence[Any]) -> CachedLayer:
    """The bytes of one layer's ``caches``, and whether they are quantized."""
    held = [leaf for leaf in leaves(caches) if not leaf.empty()]
    return CachedLayer(
        nbytes=sum(leaf.nbytes for leaf in held),
        quantized=any(hasattr(c, "bits") for c in held),
        dtypes=floating(held),
    )


def _quantized(cache: Any, kv: KvQuant) -> Any:
    if isinstance(cache, CacheList):
        return CacheList(*(_quantized(inner, kv) for inner in cache.caches))
    if type(cache) is not KVCache:
        return cache
    return cache.to_quantized(group_size=kv.group_size, bits=int(kv.bits))
