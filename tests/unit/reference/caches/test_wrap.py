"""Which batch cache stands for which kind, and which rows may be in one pass."""

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, CacheList, ChunkedKVCache, KVCache, QuantizedKVCache

from conformance.reference.caches import wrap
from conformance.reference.caches.keys import RowwiseKeys, RowwiseQuantized
from conformance.reference.caches.wrap import RowwiseArrays, RowwiseList


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


def cache_with(*values):
    cache = ArraysCache(len(values))
    for index, value in enumerate(values):
        if value is not None:
            cache[index] = mx.full((1, 2), value)
    return cache


def test_states_are_stacked_and_split():
    rows = [cache_with(1.0, 2.0), cache_with(3.0, 4.0)]
    batch = RowwiseArrays(rows, [1, 1])
    assert batch[0].tolist() == [[1, 1], [3, 3]]
    batch[0], batch[1] = batch[0] * 10, batch[1] + 1
    batch.commit()
    assert rows[0][0].tolist() == [[10, 10]]
    assert rows[1][0].tolist() == [[30, 30]]
    assert rows[1][1].tolist() == [[5, 5]]


def test_nothing_reaches_the_rows_before_the_commit():
    rows = [cache_with(1.0), cache_with(2.0)]
    batch = RowwiseArrays(rows, [1, 1])
    batch[0] = mx.zeros((2, 2))
    assert rows[0][0].tolist() == [[1, 1]]


def test_a_row_that_begins_has_zeros_beside_others_and_none_among_its_like():
    assert RowwiseArrays([cache_with(None), cache_with(2.0)], [1, 1])[0].tolist()[0] == [0, 0]
    batch = RowwiseArrays([cache_with(None), cache_with(None)], [1, 1])
    assert batch[0] is None
    assert batch.batch_size == 2


def test_lengths_show_where_rows_end_if_they_differ():
    batch = RowwiseArrays([cache_with(None), cache_with(None)], [3, 1])
    assert batch.lengths.tolist() == [3, 1]
    assert batch.make_mask(3).tolist() == [[True, True, True], [True, False, False]]
    assert RowwiseArrays([cache_with(None), cache_with(None)], [3, 3]).make_mask(3) is None


def test_models_that_ask_for_the_class_find_it():
    assert isinstance(RowwiseArrays([cache_with(1.0)], [1]), ArraysCache)
