"""The machine finds planted faults in cache classes, and nothing in classes that are right."""

import copy
import sys

import mlx.core as mx
import pytest
from mlx_lm.models import cache as lm
from mlx_vlm.models import cache as vlm

from conformance.power.caches.cache_defects import explain, load_cache_defects
from conformance.power.caches.discovery import discover
from conformance.power.caches.sequences import explore, replay

FOUND = {found.name: found for found in discover()}
DEFECTS = load_cache_defects()
EXAMPLES = 60


def known(finding):
    return explain(DEFECTS, finding)


def search(name, examples=EXAMPLES):
    return explore(FOUND[name], examples=examples, known=known)


def lengths_lost_on_extend(patch):
    right = lm.ArraysCache.extend

    def wrong(self, other):
        mine = self.lengths
        right(self, other)
        self.lengths = mine

    patch.setattr(lm.ArraysCache, "extend", wrong)


def merge_by_write_index(patch):
    right = lm.BatchRotatingKVCache.merge.__func__

    def wrong(cls, caches):
        for cache in caches:
            cache.size = lambda cache=cache: cache._idx
        merged = right(cls, caches)
        for cache in caches:
            del cache.size
        return merged

    patch.setattr(lm.BatchRotatingKVCache, "merge", classmethod(wrong))


def merge_of_empty_fails(patch):
    right = lm.BatchKVCache.merge.__func__

    def wrong(cls, caches):
        assert all(cache.keys is not None for cache in caches)
        return right(cls, caches)

    patch.setattr(lm.BatchKVCache, "merge", classmethod(wrong))


def ring_sliced_as_linear(patch):
    right = lm.BatchRotatingKVCache.extract

    def wrong(self, idx):
        twin = copy.copy(self)
        if twin.rotated:
            twin.rotated, twin._idx = False, twin.keys.shape[2]
        return right(twin, idx)

    patch.setattr(lm.BatchRotatingKVCache, "extract", wrong)


def emptied_batch_reused(patch):
    right = lm.BatchKVCache.trim

    def wrong(self, n):
        done = right(self, n)
        self._idx += n
        self.left_padding = self.left_padding + n
        return done

    patch.setattr(lm.BatchKVCache, "trim", wrong)


def scales_of_another_row(patch):
    right = vlm.BatchQuantizedKVCache.filter

    def wrong(self, batch_indices):
        scales = self.keys[1] if self.keys is not None else None
        right(self, batch_indices)
        if scales is not None and scales.shape[2] == self.keys[1].shape[2]:
            packed, kept, biases = self.keys
            self.keys = (packed, scales[: kept.shape[0]], biases)

    patch.setattr(vlm.BatchQuantizedKVCache, "filter", wrong)


def mask_forgets_padding(patch):
    def wrong(self, N, return_array=False, **kwargs):  # noqa: N803 (the library's name)
        return lm.create_causal_mask(N, offset=self._idx, **kwargs)

    patch.setattr(lm.BatchKVCache, "make_mask", wrong)


def offset_off_by_one(patch):
    right = lm.BatchKVCache.finalize

    def wrong(self):
        padded = self._right_padding is not None
        right(self)
        self.offset = self.offset + int(padded)

    patch.setattr(lm.BatchKVCache, "finalize", wrong)


def filter_keeps_first_rows(patch):
    right = lm.BatchKVCache.filter

    def wrong(self, batch_indices):
        count = len(batch_indices) if isinstance(batch_indices, list) else batch_indices.size
        right(self, list(range(count)))

    patch.setattr(lm.BatchKVCache, "filter", wrong)


def extend_forgets_padding(patch):
    right = lm.BatchRotatingKVCache.extend

    def wrong(self, other):
        padding = mx.concatenate([self.left_padding, other.left_padding])
        right(self, other)
        self.left_padding = padding

    patch.setattr(lm.BatchRotatingKVCache, "extend", wrong)


def load_loses_offset(patch):
    right = lm.BatchKVCache.state

    def load(self, v):
        right.fset(self, v)
        self.offset = mx.zeros_like(self.offset)

    patch.setattr(lm.BatchKVCache, "state", property(right.fget, load))


def nbytes_lies(patch):
    patch.setattr(
        lm.BatchKVCache, "nbytes", property(lambda self: 0 if self.empty() else self.keys.nbytes)
    )


def padding_rolled_the_wrong_way(patch):
    right = lm.dynamic_roll
    patch.setattr(lm, "dynamic_roll", lambda x, shifts, axis: right(x, -shifts, axis))


def values_of_another_row(patch):
    right = lm.BatchKVCache.extend

    def wrong(self, other):
        right(self, other)
        if self.values is not None:
            self.values = self.values[::-1]

    patch.setattr(lm.BatchKVCache, "extend", wrong)


def remainder_lost_on_filter(patch):
    right = vlm.BatchPoolingCache.filter

    def wrong(self, batch_indices):
        kept = self.remainder
        right(self, batch_indices)
        self.remainder = kept[: len(self.remainder)]

    patch.setattr(vlm.BatchPoolingCache, "filter", wrong)


def copy_shares_rows(patch):
    def wrong(self, memo):
        twin = copy.copy(self)
        twin.cache = self.cache
        return twin

    patch.setattr(lm.ArraysCache, "__deepcopy__", wrong, raising=False)


def narrower_window_forgotten(patch):
    right = lm.BatchKVCache.make_mask

    def wrong(self, N, **kwargs):  # noqa: N803 (the library's name)
        return right(self, N, **{**kwargs, "window_size": None})

    patch.setattr(lm.BatchKVCache, "make_mask", wrong)


def never_trimmable(patch):
    patch.setattr(lm.BatchKVCache, "is_trimmable", lambda _: False)


def lengths_kept_after_finalize(patch):
    right = lm.BatchRotatingKVCache.finalize

    def wrong(self):
        lengths = self._lengths
        right(self)
        self._lengths = lengths

    patch.setattr(lm.BatchRotatingKVCache, "finalize", wrong)


def padding_lost_before_it_is_fed(patch):
    right = lm.ArraysCache.extend

    def wrong(self, other):
        if self.empty() and self.left_padding is not None:
            self.left_padding = lm.mx.zeros_like(self.left_padding)
        right(self, other)

    patch.setattr(lm.ArraysCache, "extend", wrong)


FAULTS = [
    (padding_lost_before_it_is_fed, "mlx_lm.ArraysCache", "joining unfed"),
    (lengths_lost_on_extend, "mlx_lm.ArraysCache", "prepare"),
    (merge_by_write_index, "mlx_lm.RotatingKVCache", "merge"),
    (merge_of_empty_fails, "mlx_lm.KVCache", "merge"),
    (ring_sliced_as_linear, "mlx_lm.BatchRotatingKVCache", "extract"),
    (emptied_batch_reused, "mlx_lm.BatchKVCache", "trim"),
    (scales_of_another_row, "mlx_vlm.BatchQuantizedKVCache", "filter"),
    (mask_forgets_padding, "mlx_lm.BatchKVCache", "prompt"),
    (offset_off_by_one, "mlx_lm.BatchKVCache", "finalize"),
    (filter_keeps_first_rows, "mlx_lm.BatchKVCache", "filter"),
    (extend_forgets_padding, "mlx_lm.BatchRotatingKVCache", "extend"),
    (load_loses_offset, "mlx_lm.BatchKVCache", "state"),
    (nbytes_lies, "mlx_lm.BatchKVCache", "prompt"),
    (padding_rolled_the_wrong_way, "mlx_lm.BatchKVCache", "finalize"),
    (values_of_another_row, "mlx_lm.BatchKVCache", "extend"),
    (remainder_lost_on_filter, "mlx_vlm.BatchPoolingCache", "filter"),
    (copy_shares_rows, "mlx_lm.ArraysCache", "new"),
    (narrower_window_forgotten, "mlx_lm.BatchKVCache", "prompt"),
    (never_trimmable, "mlx_lm.BatchKVCache", "prompt"),
    (lengths_kept_after_finalize, "mlx_lm.BatchRotatingKVCache", "finalize"),
]


@pytest.mark.parametrize(
    ("plant", "name", "verb"), FAULTS, ids=lambda one: getattr(one, "__name__", None)
)
def test_a_planted_fault_is_found_and_its_sequence_shrunk(plant, name, verb, monkeypatch):
    plant(monkeypatch)
    failure = search(name).failure
    assert failure is not None
    assert failure.name == name
    assert any(verb in step for step in failure.steps)
    assert len(failure.steps) <= 5
    with pytest.raises(type(failure), match=failure.problem.what):
        replay(failure.play, list(FOUND.values()), lambda finding: known(finding) is not None)


# What it keeps takes ten times as long to compute.
LONG = "mlx_vlm.BatchTurboQuantKVCache"


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.nightly] * (name == LONG)) for name in sorted(FOUND)],
)
def test_what_is_not_known_of_the_installed_release_is_nothing(name):
    outcome = search(name, examples=20)
    assert outcome.failure is None
    assert outcome.sequences >= 20
    assert outcome.verbs["new"] > 0


def test_the_same_seed_plays_the_same_sequences():
    first, again = (search("mlx_lm.BatchKVCache", examples=15) for _ in range(2))
    assert first.verbs == again.verbs
    assert {name: one.play for name, one in first.known.items()} == {
        name: one.play for name, one in again.known.items()
    }


def test_a_known_defect_is_reported_where_nothing_is_known():
    failure = explore(FOUND["mlx_vlm.BatchQuantizedKVCache"], examples=5).failure
    assert failure.problem.what in ("nbytes", "alias")


def test_what_is_drawn_too_seldom_is_played_always(monkeypatch):
    right = lm.ArraysCache.extend

    def widened(self, other):
        unfed = self.empty()
        right(self, other)
        if unfed:
            self.cache = [state.astype(mx.float32) for state in self.cache]

    monkeypatch.setattr(lm.ArraysCache, "extend", widened)
    failure = search("mlx_lm.ArraysCache", examples=1).failure
    assert failure.problem.what == "dtype"
    assert failure.steps[0] == "dtype bfloat16"
    assert len(failure.steps) == 3


class NoRowOfARing:
    """mlx.core, where what extract rolls is nothing."""

    def __getattr__(self, name):
        return getattr(mx, name)

    def roll(self, *args, **kwargs):
        alone = sys._getframe(1).f_code.co_name == "extract"
        return None if alone else mx.roll(*args, **kwargs)


def test_an_error_of_a_cache_that_was_fed_is_not_known(monkeypatch):
    monkeypatch.setattr(lm, "mx", NoRowOfARing())
    failure = search("mlx_lm.BatchRotatingKVCache", examples=1).failure
    assert "'NoneType' object is not subscriptable (cache.py" in str(failure)
    assert "unfilled" not in failure.facts


def test_a_mask_of_no_known_name_is_found(monkeypatch):
    right = lm.KVCache.make_mask

    def misnamed(self, *args, **kwargs):
        mask = right(self, *args, **kwargs)
        return "diagonal" if isinstance(mask, str) else mask

    monkeypatch.setattr(lm.KVCache, "make_mask", misnamed)
    problem = search("mlx_lm.KVCache", examples=1).failure.problem
    assert "a mask that no attention takes: 'diagonal'" in problem.text
