"""Properties of mlx-vlm's cache classes: they hold, and each detects a class that is broken."""

import functools

import pytest
from mlx_vlm.models import cache

from conformance.power.properties.mlx_vlm import properties

ALL = {one.name: one for one in properties() if one.name.startswith("caches")}


@pytest.mark.parametrize("name", ALL)
def test_it_holds(name):
    assert ALL[name].problem() == ""


ARRAYS, POOLING, BATCH_POOLING = cache.ArraysCache, cache.PoolingCache, cache.BatchPoolingCache
ROTATING, BUFFERED = cache.RotatingKVCache, cache.BufferedRotatingKVCache
# For each property what is broken, and how; None: it does nothing.
BROKEN = {
    "caches: batches": (cache.BatchKVCache, "is_single_row", lambda single: not single),
    "caches: batches that are prepared": (cache.BatchRotatingKVCache, "prepare", None),
    "caches: rows that join unfed": (ARRAYS, "extend", None),
    "caches: those of a model": (cache, "should_quantize_kv_layer", lambda packed: True),
    "caches: what all have": (
        ARRAYS,
        "prefix_cache_snapshot",
        lambda kept: kept | {"lengths": None},
    ),
    "caches: lists of caches": (cache.CacheList, "size", lambda size: size - 2),
    "caches: blocks of recurrent layers": (ARRAYS, "_restore_speculative_metadata", None),
    "caches: blocks given up": (ARRAYS, "abort_speculation", None),
    "caches: blocks that are refused": (ARRAYS, "_recorded_length", lambda length: 0),
    "caches: windows of rows": (ARRAYS, "update_window", lambda window: window[::-1]),
    "caches: streams as they are kept": (cache.QuantizedKVCache, "prefix_cache_merge", None),
    "caches: streams quantized and taken apart": (
        cache.KVCache,
        "to_quantized",
        lambda packed: cache.QuantizedKVCache(bits=packed.bits),
    ),
    "caches: chunks": (cache.ChunkedKVCache, "maybe_trim_front", None),
    "caches: prefixes that are read only": (
        cache.StaticPrefixKVCache,
        "_capacity_for",
        lambda room: room + 1,
    ),
    "caches: blocks of pooled windows": (
        cache,
        "_select_pooling_remainder",
        lambda rest: rest[:, ::-1],
    ),
    "caches: blocks of pooled rows": (
        BATCH_POOLING,
        "_speculative_valid_lengths",
        lambda both: ([0] * len(both[0]), both[1]),
    ),
    "caches: pooled blocks given up": (POOLING, "abort_speculation", None),
    "caches: pooled blocks that are refused": (cache, "_record_pooling_speculative_inputs", None),
    "caches: pooled windows as they are kept": (POOLING, "prefix_cache_restore", None),
    "caches: streams in any order": (cache.ChunkedKVCache, "trim", lambda count: count + 1),
    "caches: room of streams": (cache.KVCache, "prefix_cache_reserve", None),
    "caches: windows and first tokens": (ROTATING, "make_mask", lambda mask: None),
    "caches: room of windows": (ROTATING, "trim", lambda count: count + 1),
    "caches: buffered windows": (BUFFERED, "_planned_drop", lambda count: count and count - 1),
    "caches: windows that become buffered": (BUFFERED, "_capacity_for", lambda room: room + 1),
    "caches: windows as they are kept": (ROTATING, "prefix_cache_snapshot", lambda kept: {}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_class_is_detected(monkeypatch, name):
    owner, attribute, change = BROKEN[name]
    right = getattr(owner, attribute)

    @functools.wraps(right)
    def broken(*args, **kwargs):
        return change and change(right(*args, **kwargs))

    monkeypatch.setattr(owner, attribute, broken)
    assert ALL[name].problem() != ""


def test_each_is_broken_once():
    assert set(ALL) == set(BROKEN)
