"""Lists of caches: each place stands for the rows' caches at that place."""

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, CacheList, KVCache

from conformance.reference.caches.keys import RowwiseKeys
from conformance.reference.caches.listed import RowwiseList
from conformance.reference.caches.wrap import wrap


def test_each_place_is_wrapped_by_its_kind_and_lists_in_lists_too():
    rows = [CacheList(KVCache(), CacheList(ArraysCache(1), KVCache())) for _ in range(2)]
    batch = RowwiseList(rows, [1, 1], wrap)
    assert isinstance(batch[0], RowwiseKeys)
    assert isinstance(batch[1][1], RowwiseKeys)
    batch[1][0][0] = mx.array([[1.0], [2.0]])
    batch.commit()
    assert [row[1][0][0].item() for row in rows] == [1.0, 2.0]


def test_it_is_empty_as_long_as_its_rows_are():
    rows = [CacheList(KVCache(), KVCache())]
    batch = RowwiseList(rows, [1], wrap)
    assert batch.empty()
    assert batch.state == []
    batch[0].update_and_fetch(mx.ones((1, 1, 1, 2)), mx.ones((1, 1, 1, 2)))
    assert not batch.empty()
    assert len(batch.state) == 1
