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


@pytest.mark.parametrize("owner", [KVCache, BatchKVCache])
@pytest.mark.parametrize(("columns", "count"), [(0, 2), (4, 0)])
def test_only_values_without_columns_are_made_anew(monkeypatch, owner, columns, count):
    def make():
        return owner() if owner is KVCache else owner([0])

    def update(self, keys, values):
        kept = right(self, keys, values)
        written.append(self.values)
        return kept

    whole, expected = given(columns, make())
    right, written, hits = owner.update_and_fetch, [], Hits()
    monkeypatch.setattr(owner, "update_and_fetch", update)
    with values_without_columns_are_made_anew.repair(hits):
        cache, values = given(columns, make())
    assert hits.count == count
    assert (cache.values is written[-1]) == (count == 0)
    assert cache.values.shape == whole.values.shape
    assert mx.array_equal(values, expected)
    assert mx.array_equal(cache.keys, whole.keys)
