"""Single-stream caches, quantized by the documented policy of the batch generator.

``generate_step(kv_bits=...)`` has a different policy (uniform: every layer, once a cache has passed
the start, after each chunk), so its stream is no oracle for a quantized batch;
``MlxVlm.policy_stream`` makes it available for comparison.

The policy is written here a second time instead of being taken from the library, so that a batch
with a different policy is detected. Keys and values of full attention are quantized on the fly,
except in the last layer if there are more than two. TurboQuant quantizes no request whose prompt is
shorter than the start; uniform quantization has no start (``mlx_vlm.generate.ar._make_cache``,
``mlx_vlm.models.cache.should_quantize_kv_layer``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mlx.utils import tree_flatten
from mlx_vlm.models import cache as caches
from mlx_vlm.turboquant import TurboQuantKVCache, turboquant_enabled

from conformance.backend.cache_entries import floating
from conformance.core.engine_options import KvQuant
from conformance.core.trace import CachedLayer
from conformance.plugins.mlx_vlm import compat

# Models with more layers than these never quantize their last layer.
_SHALLOW = 2


def make_cache(model: Any, kv: KvQuant, prompt_length: int) -> list[Any]:
    """A cache for one row, with the same layers quantized as in the batch generator.

    Raises:
        NotImplementedError: the batch generator refuses one of the model's caches.
    """
    _require_supported(model, kv, prompt_length)
    plain = caches.make_prompt_cache(model)
    if is_turbo(kv) and prompt_length < kv.start:
        return list(plain)
    return [
        entry if index == _last(plain) else _quantized(entry, kv)
        for index, entry in enumerate(plain)
    ]


def is_turbo(kv: KvQuant) -> bool:
    """Whether the library uses TurboQuant for these options: by scheme, or for fractional bits."""
    return bool(turboquant_enabled(kv.bits, kv.scheme))


def _require_supported(model: Any, kv: KvQuant, prompt_length: int) -> None:
    """Make the library's batch cache of one row, so that the library can refuse it."""
    compat.make_batch_cache(model, kv, prompt_length)


def head_sizes(used: list[Any]) -> frozenset[int]:
    """The sizes of keys and values in the quantized layers, from used caches that are plain."""
    return frozenset(
        int(array.shape[-1])
        for index, entry in enumerate(used)
        if index != _last(used)
        for leaf in _leaves(entry)
        if _quantizable(leaf) and not leaf.empty()
        for array in (leaf.keys, leaf.values)
    )


def layers(entries: list[Any]) -> tuple[CachedLayer, ...]:
    """For each layer, the bytes of its cache in use, whether it is quantized, and its dtypes."""
    return tuple(
        CachedLayer(
            nbytes(entry),
            any(hasattr(leaf, "bits") for leaf in _leaves(entry)),
            floating(entry),
        )
        for entry in entries
    )


def nbytes(entry: Any) -> int:
    """Bytes in use of a cache's arrays, without arrays of one axis."""
    total = 0
    for leaf in _leaves(entry):
        empty = getattr(leaf, "empty", None)  # some models' own caches lack it
        if empty is None or not empty():
            arrays: Any = tree_flatten(leaf.state)
            total += sum(int(a.nbytes) for _, a in arrays if getattr(a, "ndim", 0) > 1)
    return total


def _last(entries: list[Any]) -> int | None:
    """The index of the layer that is never quantized."""
    return len(entries) - 1 if len(entries) > _SHALLOW else None


def _quantized(entry: Any, kv: KvQuant) -> Any:
    if isinstance(entry, caches.CacheList):
        return caches.CacheList(*(_quantized(one, kv) for one in entry.caches))
    if isinstance(entry, tuple):
        return tuple(_quantized(one, kv) for one in entry)
    if not _quantizable(entry):
        return entry
    if is_turbo(kv):
        return TurboQuantKVCache(bits=compat.kv_arguments(kv)["kv_bits"])
    return caches.QuantizedKVCache(group_size=kv.group_size, bits=int(kv.bits))


def _quantizable(entry: Any) -> bool:
    kinds = (caches.KVCache, caches.ChunkedKVCache, caches.SimpleKVCache)
    return isinstance(entry, kinds) and not hasattr(entry, "to_batch")


def _leaves(entry: Any) -> Iterator[Any]:
    inner = entry if isinstance(entry, tuple | list) else getattr(entry, "caches", None)
    if inner is None:
        yield entry
        return
    for one in inner:
        yield from _leaves(one)
