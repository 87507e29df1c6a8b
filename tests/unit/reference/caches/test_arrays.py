"""Recurrent states: stacked for a pass, each row's own again after it."""

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache

from conformance.reference.caches.arrays import RowwiseArrays


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
