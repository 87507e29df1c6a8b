"""What prefix caching keeps of a cache, in memory and in files, is its rows."""

from functools import partial

import mlx.core as mx
import pytest
from mlx_vlm import apc, apc_adapters
from mlx_vlm.models import cache as vlm
from mlx_vlm.models.cache import ArraysCache

from conformance.power.caches.cache_defects import explain, load_cache_defects
from conformance.power.caches.discovery import discover
from conformance.power.caches.finding import FindingError
from conformance.power.caches.sequences import explore, replay
from conformance.power.caches.verbs import through_file

FOUND = {found.name: found for found in discover()}
DEFECTS = load_cache_defects()


def kept_rows_in_another_order(patch):
    right = vlm.KVCache.prefix_cache_merge

    def wrong(self, rows, prefix_lens):
        return right(self, rows[::-1], prefix_lens[::-1])

    patch.setattr(vlm.KVCache, "prefix_cache_merge", wrong)


def kept_row_has_its_first_token_twice(patch):
    right = apc_adapters._copy_array

    def wrong(x):
        return right(mx.concatenate([x[..., :1, :], x[..., :-1, :]], axis=-2))

    patch.setattr(apc_adapters, "_copy_array", wrong)


def file_without_offset(patch):
    right = apc._read_safetensors_header

    def wrong(path):
        entries, metadata, start = right(path)
        return entries, {k: v for k, v in metadata.items() if not k.endswith("_offset")}, start

    patch.setattr(apc, "_read_safetensors_header", wrong)


def kept_cold_row_has_a_token(patch):
    right = apc_adapters.clone_cache_entry

    def wrong(entry, **options):
        kept = right(entry, **options)
        if type(kept) is vlm.KVCache and kept.empty():
            kept.update_and_fetch(mx.ones((1, 2, 1, 32)), mx.ones((1, 2, 1, 64)))
        return kept

    patch.setattr(apc_adapters, "clone_cache_entry", wrong)


COLD = "mlx_vlm.BatchQuantizedKVCache 0 float32; new 0 0; keep 0 0; decode 1"
FAULTS = [
    (file_without_offset, "mlx_vlm.RotatingKVCache", "in a file"),
    (kept_rows_in_another_order, "mlx_vlm.BatchKVCache", "kept"),
    (kept_row_has_its_first_token_twice, "mlx_vlm.KVCache", "kept"),
]


def test_a_row_without_tokens_may_be_kept_as_an_empty_cache_of_a_model(monkeypatch):
    def judge(finding):
        return explain(DEFECTS, finding) is not None

    replay(COLD, list(FOUND.values()), judge)
    kept_cold_row_has_a_token(monkeypatch)
    with pytest.raises(FindingError, match="keep"):
        replay(COLD, list(FOUND.values()), judge)


@pytest.mark.parametrize(
    ("plant", "name", "verb"), FAULTS, ids=lambda one: getattr(one, "__name__", None)
)
def test_a_planted_fault_is_found(plant, name, verb, monkeypatch):
    plant(monkeypatch)
    known = partial(explain, DEFECTS)
    failure = explore(FOUND[name], examples=60, known=known).failure
    assert failure is not None
    assert any(verb in step for step in failure.steps)


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
