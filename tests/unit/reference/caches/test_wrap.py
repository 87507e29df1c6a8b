"""Which batch cache stands for which kind, and which rows may be in one pass."""

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, CacheList, ChunkedKVCache, KVCache, QuantizedKVCache

from conformance.reference.caches import wrap
from conformance.reference.caches.arrays import RowwiseArrays
from conformance.reference.caches.keys import RowwiseKeys, RowwiseQuantized
from conformance.reference.caches.wrap import RowwiseList


def test_each_kind_has_its_batch_cache():
    made = {
        KVCache(): RowwiseKeys,
        QuantizedKVCache(): RowwiseQuantized,
        ArraysCache(1): RowwiseArrays,
    }
    for cache, kind in made.items():
        assert type(wrap.wrap([cache], [1])) is kind
    assert type(wrap.wrap([CacheList(KVCache())], [1])) is RowwiseList


def test_kinds_that_cannot_be_padded_must_be_even():
    assert not wrap.must_be_even([KVCache(), CacheList(ArraysCache(1))])
    assert wrap.must_be_even([KVCache(), ChunkedKVCache(4)])
    assert wrap.must_be_even([CacheList(object())])


def test_rows_of_other_kinds_are_distinguished():
    plain, quantized = [CacheList(KVCache(), KVCache())], [CacheList(KVCache(), QuantizedKVCache())]
    assert wrap.signature(plain) != wrap.signature(quantized)
    assert wrap.signature(plain) == wrap.signature([KVCache(), KVCache()])


def test_histories_are_distinguished():
    short, long = KVCache(), KVCache()
    long.offset = 3
    assert wrap.history([short]) != wrap.history([long])
    assert wrap.history([short]) == wrap.history([KVCache()])


def test_each_place_is_wrapped_by_its_kind_and_lists_in_lists_too():
    rows = [CacheList(KVCache(), CacheList(ArraysCache(1), KVCache())) for _ in range(2)]
    batch = RowwiseList(rows, [1, 1])
    assert isinstance(batch[0], RowwiseKeys)
    assert isinstance(batch[1][1], RowwiseKeys)
    batch[1][0][0] = mx.array([[1.0], [2.0]])
    batch.commit()
    assert [row[1][0][0].item() for row in rows] == [1.0, 2.0]


def test_it_is_empty_as_long_as_its_rows_are():
    rows = [CacheList(KVCache(), KVCache())]
    batch = RowwiseList(rows, [1])
    assert batch.empty()
    assert batch.state == []
    batch[0].update_and_fetch(mx.ones((1, 1, 1, 2)), mx.ones((1, 1, 1, 2)))
    assert not batch.empty()
    assert len(batch.state) == 1
