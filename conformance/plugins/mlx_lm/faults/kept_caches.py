"""Caches that the server keeps of what it has served, and finds by a prompt's beginning."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from mlx_lm.models import cache as caches
from mlx_lm.models.cache import LRUPromptCache, PromptTrie

from conformance.core.faults.base import Fault, Hits, replaced
from conformance.core.faults.patching import Injection, all_of, exchange
from conformance.plugins.mlx_lm.faults.tools import FULL, mlx_lm_fault

# Tokens that tell one prompt from another, where keys are cut off.
_TOLD = 4


def _dead_branches(_: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def pop(self: Any, model: Any, tokens: list[int]) -> Any:
        # The nodes that led to the value stay, and lead nowhere.
        hits.hit()
        node = self._trie[model]
        for token in tokens:
            node = node[token]
        return node.pop("__value__")

    return pop


def _counted_twice(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def insert(self: Any, model: Any, tokens: list[int], *args: Any, **options: Any) -> None:
        found = self._trie.search(model, tokens).exact
        before = self._trie.get(model, found) if found is not None else None
        right(self, model, tokens, *args, **options)
        if before is not None:
            hits.hit()
            self._n_bytes += before.nbytes

    return insert


class _CutKeys:
    """Keys of which only the first tokens and the length count."""

    def __init__(self) -> None:
        self._kept: list[list[int]] = []

    def at_insert(self, right: Callable[..., Any], _: Hits) -> Callable[..., Any]:
        def insert(kept: Any, model: Any, tokens: list[int], *args: Any, **options: Any) -> None:
            self._kept.append(tokens)
            right(kept, model, _cut(tokens), *args, **options)

        return insert

    def at_fetch(self, right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def fetch(kept: Any, model: Any, tokens: list[int]) -> Any:
            cache, rest = right(kept, model, _cut(tokens))
            count = len(tokens) - len(rest)
            if count and all(other[:count] != tokens[:count] for other in self._kept):
                hits.hit()
            return cache, tokens[count:]

        return fetch


def _cut(tokens: list[int]) -> list[int]:
    return tokens[:_TOLD] + [0] * len(tokens[_TOLD:])


def _cut_keys(hits: Hits) -> Any:
    keys = _CutKeys()
    return all_of(
        exchange(LRUPromptCache, "insert_cache", keys.at_insert),
        exchange(LRUPromptCache, "fetch_nearest_cache", keys.at_fetch),
    )(hits)


def _not_copied(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    trim = caches.trim_prompt_cache

    def cut(kept: Any, count: int) -> Any:
        hits.hit()
        return trim(kept, count)

    def fetch(self: Any, model: Any, tokens: list[int]) -> Any:
        same = SimpleNamespace(deepcopy=lambda kept: kept)
        with replaced(caches, "copy", same), replaced(caches, "trim_prompt_cache", cut):
            return right(self, model, tokens)

    return fetch


def _cut_too_late(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def trim(cache: Any, count: int) -> Any:
        hits.hit()
        return right(cache, count - 1)

    return trim


def _fault(
    name: str,
    source: str,
    summary: str,
    inject: Injection,
    *,
    needs: tuple[str, ...] = (),
    crash: bool = False,
) -> Fault:
    return mlx_lm_fault(
        name=name,
        fault_class="prefix cache crash" if crash else "prefix cache",
        source=source,
        summary=summary,
        needs=needs,
        kills=("prefix_caching",),
        inject=inject,
        crash=crash,
        where="crash:*cache.py*" if crash else "cache:*",
    )


FAULTS = (
    _fault(
        "A5.branches-without-a-value",
        "issue trackers: prompt trie search after an eviction",
        "A sequence that is given up leaves its branch in the trie, where a search ends nowhere.",
        exchange(PromptTrie, "pop", _dead_branches),
        crash=True,
    ),
    _fault(
        "A6.bytes-counted-twice",
        "mlx-lm #1054",
        "A sequence kept anew counts twice, so that caches are given up when none are left.",
        exchange(LRUPromptCache, "insert_cache", _counted_twice),
        crash=True,
    ),
    _fault(
        "F3.keys-cut-off",
        "issue trackers: prefix cache keyed by a truncated hash",
        "A prompt is found by its first tokens and its length: another one's cache is served.",
        _cut_keys,
    ),
    _fault(
        "F4.kept-cache-not-copied",
        "issue trackers: stored entry shared with a running request",
        "What a request gets is the kept cache itself, which it cuts to its own needs.",
        exchange(LRUPromptCache, "fetch_nearest_cache", _not_copied),
        needs=(FULL,),
    ),
    _fault(
        "F5.cut-one-token-too-late",
        "issue trackers: prefix hit off by one",
        "A longer sequence's cache keeps one token more than the prompts share.",
        exchange(caches, "trim_prompt_cache", _cut_too_late),
        needs=(FULL,),
    ),
)
