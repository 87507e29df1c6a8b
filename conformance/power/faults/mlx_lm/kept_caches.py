"""Caches that the server keeps of what it has served, and finds by a prompt's beginning."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

from mlx_lm.models import cache as caches
from mlx_lm.models.cache import LRUPromptCache, PromptTrie

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, replace, together, wrap
from conformance.power.faults.mlx_lm.tools import (
    FULL,
    RECURRENT,
    ROTATING,
    generate,
    mlx_lm_fault,
)

# So many tokens distinguish prompts, where keys are cut off.
_DISTINCT = 4
_fault = partial(
    mlx_lm_fault, fault_class="prefix cache", kills=("prefix_caching",), where="cache:*"
)
_crash = partial(_fault, fault_class="prefix cache crash", where="crash:*cache.py*", crash=True)


@_crash(
    "A5.branches-without-a-value", source="issue trackers: prompt trie search after an eviction"
)
def branches_without_a_value(hits: Hits) -> Patch:
    """A sequence that is given up leaves its branch in the trie, where a search ends nowhere."""

    def pop(_: Right, self: Any, model: Any, tokens: list[int]) -> Any:
        # The nodes that led to the value stay, and lead nowhere.
        hits.hit()
        node = self._trie[model]
        for token in tokens:
            node = node[token]
        return node.pop("__value__")

    return wrap(PromptTrie, "pop", pop)


@_crash("A6.bytes-counted-twice", source="mlx-lm #1054")
def bytes_counted_twice(hits: Hits) -> Patch:
    """A sequence kept anew counts twice, so that caches are given up when none are left."""

    def insert(
        right: Right, self: Any, model: Any, tokens: list[int], *args: Any, **options: Any
    ) -> None:
        found = self._trie.search(model, tokens).exact
        known = self._trie.get(model, found) if found is not None else None
        right(self, model, tokens, *args, **options)
        if known is not None:
            hits.hit()
            self._n_bytes += known.nbytes

    return wrap(LRUPromptCache, "insert_cache", insert)


@_fault("F3.keys-cut-off", source="issue trackers: prefix cache keyed by a truncated hash")
def keys_cut_off(hits: Hits) -> Patch:
    """A prompt is found by its first tokens and its length: another one's cache is served."""
    kept: list[list[int]] = []

    def cut(tokens: list[int]) -> list[int]:
        return tokens[:_DISTINCT] + [0] * len(tokens[_DISTINCT:])

    def insert(
        right: Right, self: Any, model: Any, tokens: list[int], *args: Any, **options: Any
    ) -> None:
        kept.append(tokens)
        right(self, model, cut(tokens), *args, **options)

    def fetch(right: Right, self: Any, model: Any, tokens: list[int]) -> Any:
        cache, rest = right(self, model, cut(tokens))
        count = len(tokens) - len(rest)
        hits.hit_if(count and all(other[:count] != tokens[:count] for other in kept))
        return cache, tokens[count:]

    return together(
        wrap(LRUPromptCache, "insert_cache", insert),
        wrap(LRUPromptCache, "fetch_nearest_cache", fetch),
    )


@_fault(
    "F4.kept-cache-not-copied",
    source="issue trackers: stored entry shared with a running request",
    needs=(FULL,),
)
def kept_cache_not_copied(hits: Hits) -> Patch:
    """What a request gets is the kept cache itself, which it cuts to its own needs."""

    def trim(right: Right, cache: Any, count: int) -> Any:
        hits.hit()
        return right(cache, count)

    def fetch(right: Right, self: Any, model: Any, tokens: list[int]) -> Any:
        same = SimpleNamespace(deepcopy=lambda kept: kept)
        with replace(caches, "copy", same), wrap(caches, "trim_prompt_cache", trim):
            return right(self, model, tokens)

    return wrap(LRUPromptCache, "fetch_nearest_cache", fetch)


@_fault("F5.cut-one-token-too-late", source="issue trackers: prefix hit off by one", needs=(FULL,))
def cut_one_token_too_late(hits: Hits) -> Patch:
    """A longer sequence's cache keeps one token more than the prompts share."""

    def trim(right: Right, cache: Any, count: int) -> Any:
        hits.hit()
        return right(cache, count - 1)

    return wrap(caches, "trim_prompt_cache", trim)


@_fault(
    "F4.kept-of-the-last-row",
    source="mlx-lm 0.31.0, generate.py:1158: a row's number is read when all were counted",
    kills=("prefix_caching/first_pieces",),
    # Of a sequence that can be cut no shorter one is kept.
    needs=(f"{RECURRENT}|{ROTATING}",),
)
def kept_of_the_last_row(hits: Hits) -> Patch:
    """Of prompts that are prefilled together, the last one's cache is kept for each."""

    def extract(right: Right, self: Any, row: int) -> list[Any]:
        last = len(self.uids) - 1
        hits.hit_if(row != last)
        return [*right(self, last)]

    return wrap(generate.PromptProcessingBatch, "extract_cache", extract)
