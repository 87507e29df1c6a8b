"""The calls of a real store of prefixes, as they are recorded."""

import sys

import mlx.core as mx
import pytest
from mlx_vlm.models.z1t.language import Z1TCache

from conformance.core.engine_options import PrefixCaching
from conformance.core.pooled import PoolCall, Prefix
from conformance.plugins.mlx_vlm import pool_recording, prefix_caching
from conformance.plugins.mlx_vlm.pool_recording import PoolRecording

KEYS = [mx.zeros((1, 1, 5, 2))]
ONE, TWO = Prefix(7, (1, 2)), Prefix(7, (1, 2, 3, 4))


@pytest.fixture
def manager():
    return prefix_caching.make_manager(PrefixCaching(blocks=3, block_size=2))


def test_blocks_are_named_by_all_that_came_before_them(manager):
    recording = PoolRecording(manager, None)
    manager.release(manager.store_kv_blocks([1, 2, 3, 4, 5], KEYS, KEYS, extra_hash=7))
    found, count = manager.lookup_prefix([1, 2, 9, 9], extra_hash=7)
    kept, released, looked = recording.calls()
    assert (kept.call, kept.held, kept.free) == (PoolCall.KEEP, {ONE: 1, TWO: 1}, (None,))
    assert (kept.nbytes, kept.block_bytes, kept.sizes) == (80, 32, {ONE: 32, TWO: 32})
    assert (released.released, released.free) == ((ONE, TWO), (None, ONE, TWO))
    assert (looked.found, looked.held, len(found), count) == (2, {ONE: 1}, 1, 2)
    assert recording.calls() == ()


def test_an_error_that_the_library_hides_is_a_call_that_kept_nothing(manager):
    recording = PoolRecording(manager, None)
    with pytest.raises(AttributeError):
        manager.store_kv_blocks([1, 2], KEYS, [None])
    (call,) = recording.calls()
    assert (call.call, call.held) == (PoolCall.KEEP, {})


def test_without_a_bound_there_is_more_room_than_there_can_be_bytes(manager, monkeypatch):
    recording = PoolRecording(manager, None)
    monkeypatch.setattr(pool_recording, "max_bytes", lambda manager: None)
    manager.store_kv_blocks([1, 2, 3, 4, 5], KEYS, KEYS)
    manager.lookup_exact_cache([1, 2])
    assert [call.most for call in recording.calls()] == [sys.maxsize] * 2


def test_the_bound_is_set_with_what_is_kept_first(manager):
    PoolRecording(manager, 1.5)
    assert manager.memory_max_bytes == 1 << 30
    manager.store_kv_blocks([1, 2, 3, 4, 5], KEYS, KEYS)
    assert manager.memory_max_bytes == 96


def test_a_new_manager_goes_on_with_the_calls_of_the_one_before(manager):
    recording = PoolRecording(manager, None)
    manager.lookup_prefix([1, 2])
    again = recording.restarted(prefix_caching.make_manager(PrefixCaching(blocks=1)))
    assert [call.call for call in again.calls()] == [PoolCall.FIND, PoolCall.RESTART]


def test_what_the_library_counts_is_not_corrected(manager, monkeypatch):
    recording = PoolRecording(manager, None)
    wrong = {"resident_bytes": 3, "exact_resident_bytes": 2}
    monkeypatch.setattr(manager, "stats_snapshot", lambda: wrong)
    manager.exact_cache_min_tokens = 1
    cache = Z1TCache()
    cache.state = (mx.zeros((1, 2)),) * 4
    manager.store_exact_cache([1, 2], [cache])
    (call,) = recording.calls()
    assert (call.nbytes, call.counted) == (32, wrong)
