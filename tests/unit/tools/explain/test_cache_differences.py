"""What a row of a batch cache holds, against the single stream's."""

import numpy as np
import pytest

from conformance.backend.module_hooks import CacheState
from conformance.tools.explain.cache_differences import entry_differences

DONE = 3
KEYS = np.arange(1, 9, dtype=np.float32).reshape(1, 1, 4, 2)  # of positions 0 to 3


def single(**counts):
    """A single stream that holds ``DONE`` tokens, and room for another."""
    keys = KEYS.copy()
    keys[:, :, DONE:] = 0
    return CacheState(
        "2", "KVCache", {"offset": np.array([counts.pop("offset", DONE)])}, {"keys": keys}
    )


def batch(*, columns=None, offset=DONE, padding=2, row=1, **arrays):
    """Two rows of five columns; the tokens of ``row`` stand at its right end."""
    keys = np.full((2, 1, 5, 2), 99.0, np.float32)
    if columns is None:
        columns = KEYS[0, :, :DONE]
    keys[row, :, 2:] = columns
    counts = {
        "offset": np.array([7, offset]),
        "left_padding": np.array([0, padding]),
        "_idx": np.array([5]),
    }
    return CacheState("2", "BatchKVCache", counts, {"keys": keys, **arrays})


def found(got, want, *, exact=True, counted=True):
    """The parts that differ, with their columns."""
    differences = entry_differences(
        got, want, row=1, done=DONE, exact=exact, level=1e-4, counted=counted
    )
    return [(d.part, d.column) for d in differences]


def test_the_same_differs_nowhere():
    assert found(batch(), single()) == []


@pytest.mark.parametrize("position", range(DONE))
def test_a_column_that_is_spoilt_is_named_by_its_position(position):
    columns = KEYS[0, :, :DONE].copy()
    columns[:, position] += 1
    assert found(batch(columns=columns), single()) == [("keys", position)]


def test_columns_in_another_order_are_misplaced():
    got = batch(columns=KEYS[0, :, [2, 0, 1]].swapaxes(0, 1))
    (difference,) = entry_differences(
        got, single(), row=1, done=DONE, exact=True, level=1e-4, counted=True
    )
    assert (difference.column, difference.misplaced) == (2, True)


def test_where_columns_stand_is_none_of_our_business():
    got = batch()
    got.arrays["keys"][1] = np.roll(got.arrays["keys"][1], -2, axis=1)
    assert found(got, single()) == []


def test_the_order_of_a_ring_begins_at_its_oldest_column():
    got = batch(columns=KEYS[0, :, [2, 0, 1]].swapaxes(0, 1), padding=0)
    got.arrays["keys"] = got.arrays["keys"][:, :, 2:]
    got.counts.update(rotated=np.array([True]), _idx=np.array([1]), max_size=np.array([3]))
    assert found(got, single()) == []


def test_columns_that_are_not_finite_are_not_there():
    columns = KEYS[0, :, :DONE].copy()
    columns[:, 1] = np.nan
    assert found(batch(columns=columns), single()) == [("keys", 1)]


def test_counts_are_reported_only_of_rows_that_decode():
    wrong = batch(offset=DONE + 1, padding=0)
    assert found(wrong, single()) == [("offset", None), ("left_padding", None)]
    assert found(wrong, single(), counted=False) == []


def test_padding_below_zero_is_no_padding():
    full = batch(padding=-4)
    full.counts["_idx"] = np.array([DONE])
    assert ("left_padding", None) not in found(full, single())


@pytest.mark.parametrize(("padding", "right"), [(1, False), (2, True), (3, True), (4, False)])
def test_of_a_window_a_row_may_keep_no_more_than_is_seen(padding, right):
    got = batch(padding=padding)
    got.counts.update(rotated=np.array([False]), max_size=np.array([3]))
    assert (found(got, single()) == []) is right


def test_states_are_compared_only_with_those_of_the_same_moment():
    states = {"cache.0": np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)}
    got = CacheState("1", "ArraysCache", {}, states)
    want = CacheState("1", "ArraysCache", {}, {"cache.0": np.array([[3.0, 5.0]], np.float32)})
    assert found(got, want) == [("cache.0", None)]
    assert found(got, want, exact=False) == []


def test_of_a_ring_the_last_columns_are_wanted_in_the_order_of_time():
    keys = np.array([4.0, 5.0, 3.0], np.float32).reshape(1, 1, 3, 1)  # position 2 is the oldest
    counts = {"offset": np.array([5]), "_idx": np.array([2]), "max_size": np.array([3])}
    want = CacheState("0", "RotatingKVCache", counts, {"keys": keys})
    row = np.array([9.0, 4.0, 5.0], np.float32).reshape(1, 1, 3, 1)
    got = CacheState("0", "BatchRotatingKVCache", {}, {"keys": row})

    def missing(held):
        options = {"row": 0, "done": 5, "exact": True, "level": 1e-4, "counted": True}
        return [d.column for d in entry_differences(held, want, **options)]

    assert missing(got) == []
    spoilt = CacheState("0", "BatchRotatingKVCache", {}, {"keys": row + np.float32(2) * (row == 4)})
    assert missing(spoilt) == [3]


def test_of_an_empty_batch_padding_to_come_is_no_news():
    counts = {"offset": np.array([-2]), "left_padding": np.array([2]), "_idx": np.array([0])}
    options = {"row": 0, "exact": True, "level": 1e-4, "counted": True}
    empty = CacheState("0", "BatchKVCache", counts, {})
    assert list(entry_differences(empty, single(offset=0), done=0, **options)) == []
    full = CacheState("0", "BatchKVCache", {**counts, "_idx": np.array([3])}, {})
    found = entry_differences(full, single(offset=0), done=0, **options)
    assert [(d.part, d.got, d.expected) for d in found] == [
        ("offset", "-2", "0"),
        ("left_padding", "2", "3"),
    ]


def pooling(counts, tokens):
    """A pooled cache with room for two tokens that fill no pool yet."""
    buffer = np.array([tokens], np.float32)[..., None]
    return CacheState(
        "1.1", "PoolingCache", {n: np.array([c]) for n, c in counts.items()}, {"buf": buffer}
    )


def test_of_tokens_that_fill_no_pool_yet_only_those_are_compared():
    want = pooling({"remainder": 1}, [4.0, 7.0])
    assert found(two_rows(pooling({}, [4.0, 8.0])), want) == []
    assert found(two_rows(pooling({}, [5.0, 7.0])), want) == [("buf", None)]


def two_rows(held):
    """The cache's row twice."""
    arrays = {name: np.concatenate([a, a]) for name, a in held.arrays.items()}
    counts = {name: np.concatenate([c, c]) for name, c in held.counts.items()}
    return CacheState(held.place, held.kind, counts, arrays)


def test_a_cache_that_counts_pools_is_not_checked_for_tokens():
    pools = two_rows(pooling({"offset": 1}, [4.0, 7.0]))
    assert found(pools, pooling({"offset": 0}, [4.0, 7.0])) == []
    assert found(pools, pooling({"offset": DONE}, [4.0, 7.0])) == [("offset", None)]


def test_an_empty_array_differs_nowhere():
    empty = np.zeros((1, 1, DONE, 0), np.float32)
    got = batch(zeros=np.concatenate([empty, empty]))
    want = single()
    want.arrays["zeros"] = empty
    assert found(got, want) == []


@pytest.mark.parametrize(
    ("offset", "padding", "right"), [(-2, 7, True), (0, 5, True), (-1, 6, False)]
)
def test_padding_may_be_yet_to_come_in_the_pass_that_begins(offset, padding, right):
    counts = {"offset": np.array([offset]), "left_padding": np.array([padding])}
    got = CacheState("0", "BatchKVCache", {**counts, "_idx": np.array([5])}, {})
    options = {"row": 0, "exact": True, "level": 1e-4, "counted": True, "ahead": 2}
    found = list(entry_differences(got, single(offset=0), done=0, **options))
    assert (found == []) is right


def test_a_window_of_one_row_that_has_gone_round_begins_at_its_oldest_column():
    keys = KEYS[:, :, [2, 0, 1]]
    counts = {"offset": np.array([DONE]), "_idx": np.array([1]), "max_size": np.array([3])}
    got = CacheState("2", "RotatingKVCache", counts, {"keys": keys})
    options = {"row": 0, "done": DONE, "exact": True, "level": 1e-4, "counted": False}
    assert list(entry_differences(got, single(), **options)) == []
    early = CacheState("2", "RotatingKVCache", {**counts, "_idx": np.array([3])}, {"keys": keys})
    assert [d.misplaced for d in entry_differences(early, single(), **options)] == [True]
