"""Caches that come from a file: what the loader forgets, or takes from the storage."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mlx_lm.models.cache import ArraysCache, CacheList, KVCache, RotatingKVCache, _BaseCache

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, after
from conformance.power.faults.mlx_lm.tools import FULL, RECURRENT, ROTATING, mlx_lm_fault

_fault = partial(mlx_lm_fault, fault_class="cache load", kills=("prompt_cache/saved",))


def _loaded(kind: type[Any], change: Callable[[Any], None]) -> Patch:
    """``change(cache)`` after a cache of that class was made of its saved state."""

    def then(cache: Any, *_: Any, **__: Any) -> Any:
        if isinstance(cache, kind):
            change(cache)
        return cache

    return after(_BaseCache, "from_state", then)


@_fault(
    "D9.loaded-without-its-length",
    needs=(FULL,),
    where="cache:*KVCache:*",
    source="mlx-lm 0.30.7, models/cache.py: the length is not in the state, but set beside it",
)
def loaded_without_its_length(hits: Hits) -> Patch:
    """A loaded cache has keys, and counts none of them."""

    def change(cache: Any) -> None:
        hits.hit()
        cache.offset = 0

    return _loaded(KVCache, change)


@_fault(
    "D9.loaded-as-long-as-held",
    needs=(ROTATING,),
    where="cache:*RotatingKVCache:*",
    source="issue trackers: prompt cache of a rotated window",
)
def loaded_as_long_as_held(hits: Hits) -> Patch:
    """A loaded window counts the tokens that it holds, not those that it saw."""

    def change(cache: Any) -> None:
        if cache.keys is not None and cache.offset != cache.keys.shape[-2]:
            hits.hit()
            cache.offset = cache.keys.shape[-2]

    return _loaded(RotatingKVCache, change)


@_fault(
    "D9.loaded-list-of-none",
    needs=("cache:CacheList",),
    where="crash:*cache.py*",
    source="mlx-lm 0.30.7: CacheList.from_state sets a state on caches that are not there",
    crash=True,
)
def loaded_list_of_none(hits: Hits) -> Patch:
    """A loaded list of caches has no caches."""

    def change(cache: Any) -> None:
        hits.hit()
        del cache.caches

    return _loaded(CacheList, change)


@_fault(
    "D9.loaded-state-is-new",
    needs=(RECURRENT,),
    where="cache:*ArraysCache:*",
    source="mlx-lm 0.30.4, models/cache.py:564: a loaded cache lacks what its state leaves out",
)
def loaded_state_is_new(hits: Hits) -> Patch:
    """A recurrent state that was loaded is taken for that of a new prompt."""

    def change(cache: Any) -> None:
        hits.hit()
        cache.cache = [None for _ in cache.cache]

    return _loaded(ArraysCache, change)
