"""Keys and values: each row's cache is what a single row would have."""

import copy

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import ConcatenateKVCache, KVCache, QuantizedKVCache, RotatingKVCache

from conformance.reference.caches.keys import RowwiseKeys, RowwiseQuantized, RowwiseWindow

DIM = 32
KINDS = {
    "keys": (KVCache, RowwiseKeys),
    "concatenated": (ConcatenateKVCache, RowwiseKeys),
    "window": (lambda: RotatingKVCache(max_size=4), RowwiseWindow),
    "kept": (lambda: RotatingKVCache(max_size=6, keep=2), RowwiseWindow),
    "quantized": (lambda: QuantizedKVCache(group_size=32, bits=8), RowwiseQuantized),
}


def some(length, seed):
    rng = np.random.default_rng(seed)
    return tuple(mx.array(rng.normal(size=(1, 2, length, DIM)), mx.float32) for _ in "kv")


def padded(parts, length, filler=float("nan")):
    """``[rows, 2, length, DIM]``; what stands in padded columns must never be looked at."""
    widths = [[(0, 0), (0, 0), (0, length - part.shape[2]), (0, 0)] for part in parts]
    return mx.concatenate(
        [mx.pad(p, w, constant_values=filler) for p, w in zip(parts, widths, strict=True)]
    )


def plain(pair):
    """Keys and values of a fetch; of quantized ones their codes."""
    return tuple(x[0] if isinstance(x, tuple | list) else x for x in pair)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", [(1, 1, 1), (5, 1, 2), (3, 3, 3)])
def test_each_row_fetches_what_a_single_row_would(kind, lengths):
    make, rowwise = KINDS[kind]
    before = (7, 0, 3)
    caches = [make() for _ in before]
    for seed, (cache, length) in enumerate(zip(caches, before, strict=True)):
        if length:
            cache.update_and_fetch(*some(length, seed))
    alone = copy.deepcopy(caches)
    new = [some(length, 10 + row) for row, length in enumerate(lengths)]
    batch = rowwise(caches, lengths)
    assert batch.offset.tolist() == list(before)
    keys, values = zip(*new, strict=True)
    width = max(lengths)
    fetched = plain(batch.update_and_fetch(padded(keys, width), padded(values, width)))
    for row, (cache, mine) in enumerate(zip(alone, new, strict=True)):
        want = plain(cache.update_and_fetch(*mine))
        if isinstance(cache, RotatingKVCache):
            want = tuple(cache._temporal_order(x) for x in (cache.keys, cache.values))
        for got, expected in zip(fetched, want, strict=True):
            assert mx.array_equal(got[row : row + 1, :, : expected.shape[2]], expected)
            assert not mx.any(got[row, :, expected.shape[2] :]).item()
        assert caches[row].offset == before[row] + lengths[row]
    assert plain(batch.keys_and_values())[0].shape == fetched[0].shape


@pytest.mark.parametrize("before", [0, 2, 4, 9])
@pytest.mark.parametrize("new", [1, 3, 6])
def test_the_mask_of_a_window_is_that_of_the_single_stream(before, new):
    cache = RotatingKVCache(max_size=4)
    if before:
        cache.update_and_fetch(*some(before, 0))
    want = cache.make_mask(new, return_array=True)
    batch = RowwiseWindow([cache], [new])
    got = batch.make_mask(new)
    if want is None:
        assert mx.all(got).item()
    else:
        assert np.array_equal(np.array(got)[0, 0], np.array(want))
    keys, _ = batch.update_and_fetch(*some(new, 1))
    assert keys.shape[2] == got.shape[-1]


def test_a_smaller_window_of_the_model_goes_first():
    batch = RowwiseKeys([KVCache()], [5])
    assert np.array(batch.make_mask(5, window_size=2))[0, 0].sum(axis=-1).tolist() == [
        1,
        2,
        2,
        2,
        2,
    ]


def test_attention_finds_the_bits_of_quantized_caches():
    batch = RowwiseQuantized([QuantizedKVCache(group_size=32, bits=4)], [1])
    assert (batch.bits, batch.group_size) == (4, 32)
    assert not hasattr(RowwiseKeys([KVCache()], [1]), "bits")


def test_the_offset_that_a_model_took_before_an_update_does_not_move():
    batch = RowwiseKeys([KVCache(), KVCache()], [2, 1])
    taken = batch.offset
    batch.update_and_fetch(*(mx.concatenate([x, x]) for x in some(2, 0)))
    assert taken.tolist() == [0, 0]
    assert batch.offset.tolist() == [2, 2]
