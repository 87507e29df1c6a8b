"""Rows of equal history, stacked as they are."""

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ChunkedKVCache, KVCache

from conformance.reference.caches import even


def filled(kind, *pieces, value=1.0):
    cache = kind()
    for length in pieces:
        if isinstance(cache, ChunkedKVCache):
            cache.maybe_trim_front()
        x = mx.full((1, 1, length, 2), value)
        cache.update_and_fetch(x, x)
    return cache


def chunked():
    return ChunkedKVCache(4)


@pytest.mark.parametrize("kind", [KVCache, chunked])
def test_a_stacked_pass_leaves_each_row_what_a_single_row_would_have(kind):
    rows = [filled(kind, 3, value=1.0), filled(kind, 3, value=2.0)]
    stacked = even.stack(rows)
    new = mx.concatenate([mx.full((1, 1, 1, 2), v) for v in (1.0, 2.0)])
    keys, _ = stacked.update_and_fetch(new, new)
    even.split(stacked, rows)
    assert keys[:, 0, :, 0].tolist() == [[1.0] * 4, [2.0] * 4]
    for row, value in zip(rows, (1.0, 2.0), strict=True):
        assert row.offset == 4
        assert row.keys_and_values()[0][0, 0, :, 0].tolist() == [value] * 4


def test_what_is_in_stock_does_not_make_histories_differ():
    rows = [filled(KVCache, 300), filled(KVCache, 200, 100)]
    assert rows[0].keys.shape != rows[1].keys.shape
    assert even.stack(rows).keys.shape == (2, 1, 300, 2)


def test_rows_of_unequal_history_are_refused():
    with pytest.raises(ValueError, match="unequal history"):
        even.stack([filled(KVCache, 3), filled(KVCache, 2)])


def test_numbers_differ_with_what_was_cut_off_in_front():
    assert even.numbers(filled(chunked, 6, 1)) != even.numbers(filled(chunked, 7))
    assert even.numbers(filled(chunked, 6, 1)) == even.numbers(filled(chunked, 6, 1))
