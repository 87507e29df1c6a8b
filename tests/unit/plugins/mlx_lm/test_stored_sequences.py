"""What is kept is read out of the library's own store, and its arrays are counted anew."""

from types import SimpleNamespace

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, KVCache, LRUPromptCache

from conformance.core.stored import KeptSequence
from conformance.plugins.mlx_lm.stored_sequences import (
    can_be_cut,
    held_bytes,
    shortest_stored,
    stored_sequences,
)


def keys(count):
    cache = KVCache()
    cache.update_and_fetch(mx.ones((1, 1, count, 8)), mx.ones((1, 1, count, 8)))
    return cache


def states():
    cache = ArraysCache(2)
    cache[0], cache[1] = mx.ones((1, 3, 4)), mx.ones((1, 2))
    return cache


def test_each_kind_the_oldest_first():
    store = LRUPromptCache(4)
    store.insert_cache("m", [1, 2], [states()])
    store.insert_cache("m", [3], [states()], cache_type="system")
    store.insert_cache("m", [4, 5], [states()])
    kept, counted = stored_sequences(store)
    assert kept == (
        KeptSequence("assistant", (1, 2), 56, 56),
        KeptSequence("assistant", (4, 5), 56, 56),
        KeptSequence("system", (3,), 56, 56),
    )
    assert counted == {"assistant": (2, 112), "user": (0, 0), "system": (1, 56)}


def test_the_bytes_are_those_of_all_arrays():
    assert held_bytes([keys(3), states()]) == 2 * 256 * 8 * 4 + 56


def test_keys_can_be_cut_and_states_cannot():
    assert can_be_cut([keys(3)])
    assert not can_be_cut([keys(3), states()])


def test_a_store_without_kinds_is_not_known():
    assert stored_sequences(object()) is None


def test_the_shortest_is_given_itself():
    store = LRUPromptCache(4)
    assert shortest_stored(store) is None
    short = [states()]
    store.insert_cache("m", [1, 2, 3], [states()])
    store.insert_cache("m", [4, 5], short)
    store.insert_cache("m", [4, 5, 6], [states()])
    assert shortest_stored(store) is short
    store.trim_to(n_sequences=0)
    assert shortest_stored(store) is None


def test_the_tree_of_older_releases_has_other_names():
    short = [states()]
    entry, other = SimpleNamespace(prompt_cache=short), SimpleNamespace(prompt_cache=[])
    older = SimpleNamespace(_cache={"m": {7: {8: {"cache": entry, 9: {"cache": other}}}}})
    assert shortest_stored(older) is short
