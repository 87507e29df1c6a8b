"""Which sequences the server keeps and how it counts them: no answer is wrong for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mlx_lm.models.cache import ArraysCache, LRUPromptCache, PromptTrie

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, replace, wrap
from conformance.power.faults.mlx_lm.tools import FULL, RECURRENT, mlx_lm_fault

_fault = partial(
    mlx_lm_fault,
    fault_class="prefix cache policy",
    source="mlx-lm #1054",
    kills=("prefix_caching/by_number", "prefix_caching/by_bytes"),
    where="cache:*",
)
_SEVERAL = 2


def _popping(pop: Callable[[Right, Any], Any]) -> Patch:
    """``pop(right, order)`` gives the sequence that is given up."""
    real: Any = LRUPromptCache.CacheOrder

    def wrong(order: Any) -> Any:
        return pop(real.pop, order)

    return replace(LRUPromptCache, "CacheOrder", type("CacheOrder", (real,), {"pop": wrong}))


@_fault("A6.newest-given-up")
def newest_given_up(hits: Hits) -> Patch:
    """Of a kind the newest sequence is given up, and the oldest stays for ever."""

    def pop(right: Right, self: Any) -> Any:
        several = [kept for kept in self._lrus.values() if len(kept) > 1]
        hits.hit_if(several)
        for kept in several:
            kept.reverse()
        found = right(self)
        for kept in several:
            kept.reverse()
        return found

    return _popping(pop)


@_fault("A6.second-oldest-given-up", needs=(FULL, "only:KVCache"))
def second_oldest_given_up(hits: Hits) -> Patch:
    """Of several sequences of a kind the second oldest is given up."""

    def pop(right: Right, self: Any) -> Any:
        for kept in self._lrus.values():
            if len(kept) > _SEVERAL:
                hits.hit()
                oldest = kept.popleft()
                kept.insert(1, oldest)
        return right(self)

    return _popping(pop)


@_fault("A6.bound-taken-twice", kills=("prefix_caching/by_bytes",))
def bound_taken_twice(hits: Hits) -> Patch:
    """Sequences may have twice the bytes that the bound allows."""

    def trim(right: Right, self: Any, *, n_sequences: Any = None, n_bytes: Any = None) -> None:
        hits.hit_if(n_bytes and n_bytes > 0)
        right(self, n_sequences=n_sequences, n_bytes=n_bytes and 2 * n_bytes)

    return wrap(LRUPromptCache, "trim_to", trim)


@_fault("A6.system-prompts-first", needs=(RECURRENT,))
def system_prompts_first(hits: Hits) -> Patch:
    """The most valuable kind is given up first."""

    def pop(right: Right, self: Any) -> Any:
        hits.hit_if(self._lrus["system"])
        with replace(self, "_ordering", self._ordering[::-1]):
            return right(self)

    return _popping(pop)


@_fault("A6.one-too-many-kept")
def one_too_many_kept(hits: Hits) -> Patch:
    """One sequence more is kept than the bound allows."""

    def insert(right: Right, self: Any, *args: Any, **options: Any) -> None:
        with replace(self, "max_size", self.max_size + 1):
            right(self, *args, **options)
        hits.hit_if(len(self) > self.max_size)

    return wrap(LRUPromptCache, "insert_cache", insert)


@_fault("A6.prefixes-stay", needs=(FULL, "only:KVCache"))
def prefixes_stay(hits: Hits) -> Patch:
    """A sequence leaves its prefixes beside it, though its caches can be cut to each of them."""

    def none(right: Right, self: Any, model: Any, tokens: list[int]) -> Any:
        found = right(self, model, tokens)
        hits.hit_if(found)
        for count, value in found:
            self.add(model, tokens[:count], value)
        return []

    return wrap(PromptTrie, "pop_prefixes", none)


@_fault("A6.longer-sequences-not-found", needs=(FULL, "only:KVCache"))
def longer_sequences_not_found(hits: Hits) -> Patch:
    """Only what is kept of exactly a prompt's beginning is found, nothing that goes beyond."""

    def search(right: Right, self: Any, *args: Any) -> Any:
        found = right(self, *args)
        hits.hit_if(found.longer is not None)
        found.longer = None
        return found

    return wrap(PromptTrie, "search", search)


@_fault("A6.bytes-of-first-state-alone", needs=(RECURRENT,))
def bytes_of_first_state_alone(hits: Hits) -> Patch:
    """The bytes of recurrent layers are those of their first state."""

    def first(self: Any) -> int:
        hits.hit_if(len(self.cache) > 1)
        return 0 if self.cache[0] is None else int(self.cache[0].nbytes)

    return replace(ArraysCache, "nbytes", property(first))
