"""Quantized single-stream caches, in the way an engine quantizes the caches of its rows.

mlx-lm's batches quantize nothing. Its single stream (``generate_step(kv_bits=...)``) quantizes the
first piece of a prompt only after reading it, and refuses rotating caches. Here a cache is
quantized from its first token on, if the prompt is at least as long as the start, so attention
does not depend on where pieces end. Windows, states and other entries of a ``CacheList`` than keys
and values are not quantized. The reference engine does the same in its own code.
"""

from __future__ import annotations

from typing import Any

from mlx_lm.models import cache as library

from conformance.backend.cache_entries import leaves
from conformance.core.engine_options import KvQuant
from conformance.core.errors import Unsupported


def make_cache(model: Any, kv: KvQuant, prompt_length: int) -> list[Any]:
    """A cache for one request, quantized as ``kv`` says.

    Raises:
        Unsupported: the library has no caches of this scheme.
    """
    if kv.scheme != "uniform" or kv.bits != int(kv.bits):
        raise Unsupported(f"mlx-lm has no caches of {kv.bits} bits, {kv.scheme}: not supported")
    plain: list[Any] = library.make_prompt_cache(model)
    if prompt_length < kv.start:
        return plain
    return [_quantized(entry, kv) for entry in plain]


def head_sizes(used: list[Any]) -> frozenset[int]:
    """The sizes of keys and values in the used caches that can be quantized, which are plain ones.

    The index of a sparse attention has no values and is recognized by its keys alone.
    """
    return frozenset(
        int(array.shape[-1])
        for leaf in leaves(used)
        if type(leaf) is library.KVCache
        for array in (leaf.keys, leaf.values)
        if array is not None and array.shape[-1]
    )


def _quantized(entry: Any, kv: KvQuant) -> Any:
    if isinstance(entry, library.CacheList):
        return library.CacheList(*(_quantized(one, kv) for one in entry.caches))
    if type(entry) is library.KVCache:
        return library.QuantizedKVCache(group_size=kv.group_size, bits=int(kv.bits))
    return entry
