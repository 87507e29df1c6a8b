"""Caches through a file of the library's prefix caching, in releases that write otherwise."""

import mlx.core as mx
import pytest
from mlx_vlm import apc
from mlx_vlm.models.cache import ArraysCache

from conformance.power.caches.saving import through_file


def cache_of(values):
    made = ArraysCache(1)
    made[0] = mx.array([values])
    return made


def in_its_own_thread(save):
    """As up to 0.7.0: without the argument, and nothing is returned."""

    def saved(self, cache_hash, token_ids, extra_hash, prompt_cache):
        save(self, cache_hash, token_ids, extra_hash, prompt_cache)

    return saved


@pytest.mark.parametrize("old", [False, True])
def test_a_cache_comes_back_in_releases_that_write_at_once_and_in_others(monkeypatch, old):
    if old:
        save = apc.DiskBlockStore.save_exact_cache
        monkeypatch.setattr(apc.DiskBlockStore, "save_exact_cache", in_its_own_thread(save))
    assert through_file(cache_of([1.0, 2.0]), 4, None)[0].tolist() == [[1.0, 2.0]]


def test_what_was_not_written_is_none(monkeypatch):
    monkeypatch.setattr(apc.DiskBlockStore, "save_exact_cache", lambda *_, **__: False)
    assert through_file(cache_of([1.0]), 4, None) is None
