"""Values without columns, which no GPU is here to lose: the same caches, never written into."""

import mlx.core as mx
import pytest
from mlx_lm.models.cache import BatchKVCache, KVCache

from conformance.core.faults.declaration import Hits
from conformance.plugins.mlx_lm.mends.on_cuda import values_without_columns_are_made_anew


def given(columns, cache):
    for tokens in (3, 1):
        keys = mx.ones((1, 1, tokens, 16))
        _, values = cache.update_and_fetch(keys, mx.ones((1, 1, tokens, columns)))
    return cache, values


@pytest.mark.parametrize("make", [KVCache, lambda: BatchKVCache([0])])
@pytest.mark.parametrize(("columns", "count"), [(0, 2), (4, 0)])
def test_values_are_as_they_would_be(make, columns, count):
    whole, expected = given(columns, make())
    hits = Hits()
    with values_without_columns_are_made_anew.repair(hits):
        cache, values = given(columns, make())
    assert hits.count == count
    assert cache.values.shape == whole.values.shape
    assert mx.array_equal(values, expected)
    assert mx.array_equal(cache.keys, whole.keys)
