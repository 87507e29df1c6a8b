"""Caches of prompts: taken out of a batch, kept by the server, counted and given up."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
from mlx_lm.models import cache as caches
from mlx_lm.models.cache import (
    BatchKVCache,
    KVCache,
    LRUPromptCache,
    PromptTrie,
    RotatingKVCache,
)

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import (
    Patch,
    Right,
    after,
    before,
    replace,
    together,
    wrap,
    wrap_each,
)
from conformance.power.faults.mlx_lm.tools import (
    ATTENTION,
    FULL,
    KV_CACHES,
    RECURRENT,
    ROPE,
    ROTATING,
    SURVIVORS,
    generate,
    mlx_lm_fault,
)

_taken = partial(mlx_lm_fault, fault_class="prefix cache", kills=("prompt_cache",), where="cache:*")
_off_by_one = partial(_taken, source="issue trackers: prompt cache off by one")


@_taken(
    "D9.restored-row-counts-from-zero",
    source="a Swift engine's fork",
    needs=(ROPE, ATTENTION),
    where="cache:*:offset",
)
def restored_row_counts_from_zero(hits: Hits) -> Patch:
    """A row that continues from a cache is rotated as if it had none."""

    def merge(right: Right, cls: Any, caches: Sequence[Any]) -> Any:
        cache = right(cls, caches)
        if any(c.size() for c in caches):
            hits.hit()
            cache.offset = mx.zeros_like(cache.offset)
        return cache

    return wrap_each(KV_CACHES, "merge", merge)


@_taken(
    "F4.entry-aliases-a-live-row",
    source="issue trackers: prompt cache of a running request",
    needs=(FULL,),
)
def entry_aliases_a_live_row(hits: Hits) -> Patch:
    """What was taken of a live row's cache grows with the row."""
    taken: list[tuple[Any, int, Any]] = []

    def note(cache: Any, batch: Any, idx: int) -> Any:
        taken.append((batch, idx, cache))
        return cache

    def grow(answer: Any, batch: Any, keys: mx.array, values: mx.array) -> Any:
        for owner, idx, cache in taken:
            if owner is batch:
                hits.hit()
                cache.keys = mx.concatenate([cache.keys, keys[idx : idx + 1]], axis=2)
                cache.values = mx.concatenate([cache.values, values[idx : idx + 1]], axis=2)
                cache.offset = cache.keys.shape[2]
        return answer

    def forget(batch: Any, *_: Any) -> None:
        # Rows get new numbers and buffers.
        taken[:] = [entry for entry in taken if entry[0] is not batch]

    return together(
        after(BatchKVCache, "extract", note),
        after(BatchKVCache, "update_and_fetch", grow),
        before(BatchKVCache, "filter", forget),
        before(BatchKVCache, "extend", forget),
    )


@_off_by_one("F5.one-token-too-few", needs=(FULL,))
def one_token_too_few(hits: Hits) -> Patch:
    """A cache that is taken out lacks its last token."""

    def trimmed(cache: Any, *_: Any) -> Any:
        hits.hit()
        cache.trim(1)
        return cache

    return after(BatchKVCache, "extract", trimmed)


@_off_by_one("F5.one-token-too-many", where="input:tokens")
def one_token_too_many(hits: Hits) -> Patch:
    """A request that continues from a cache skips the first token that is not in it."""

    def skip(
        _: Any, segments: Any, __: Any = None, caches: Any = None, *___: Any, **____: Any
    ) -> None:
        for prompt, cache in zip(segments, caches or (), strict=False):
            if cache is not None and len(prompt[0]) > 1:
                hits.hit()
                prompt[0] = prompt[0][1:]

    return before(generate.BatchGenerator, "insert_segments", skip)


# So many tokens distinguish prompts, where keys are cut off.
_DISTINCT = 4
_kept = partial(
    mlx_lm_fault, fault_class="prefix cache", kills=("prefix_caching",), where="cache:*"
)
_crash = partial(_kept, fault_class="prefix cache crash", where="crash:*cache.py*", crash=True)


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


@_kept("F3.keys-cut-off", source="issue trackers: prefix cache keyed by a truncated hash")
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


@_kept(
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


@_kept("F5.cut-one-token-too-late", source="issue trackers: prefix hit off by one", needs=(FULL,))
def cut_one_token_too_late(hits: Hits) -> Patch:
    """A longer sequence's cache keeps one token more than the prompts share."""

    def trim(right: Right, cache: Any, count: int) -> Any:
        hits.hit()
        return right(cache, count - 1)

    return wrap(caches, "trim_prompt_cache", trim)


@_kept(
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


_in_traffic = partial(_kept, kills=("traffic_kept",))
# A kept prefix that is longer than storage grows by.
_LONG = 256


@_in_traffic("F5.long-prefix-not-cut", source="a review: nothing is long", needs=(FULL,))
def long_prefix_not_cut(hits: Hits) -> Patch:
    """A longer sequence's cache is used whole if what the prompts share is long."""

    def trim(right: Right, cache: Any, count: int) -> Any:
        if cache[0].offset - count > _LONG:
            hits.hit()
            return cache
        return right(cache, count)

    return wrap(caches, "trim_prompt_cache", trim)


@_in_traffic("F3.last-token-not-in-the-key", source="a review: near twins")
def last_token_not_in_the_key(hits: Hits) -> Patch:
    """A kept sequence is found by all of its tokens except the last one."""

    def fetch(right: Right, self: Any, model: Any, tokens: list[int]) -> Any:
        for order in self._lru._lrus.values():
            for _, kept in order:
                end = len(kept) - 1
                if 0 < end < len(tokens) - 1 and kept[:end] == tokens[:end]:
                    hits.hit_if(kept[end] != tokens[end])
                    entry = self._trie.get(model, kept)
                    return copy.deepcopy(entry.prompt_cache), tokens[end + 1 :]
        return right(self, model, tokens)

    return wrap(LRUPromptCache, "fetch_nearest_cache", fetch)


@_in_traffic("F5.loaded-cache-forgets-its-offset", source="mlx-lm #980", needs=(ROTATING,))
def loaded_cache_forgets_its_offset(hits: Hits) -> Patch:
    """A window that has slid is loaded as if it held all tokens from the first one on."""

    def loaded(found: Any, *_: Any, **__: Any) -> Any:
        for cache in found:
            if isinstance(cache, RotatingKVCache):
                held = cache.state[0].shape[2]
                hits.hit_if(cache.offset > held)
                cache.offset = min(cache.offset, held)
        return found

    return after(caches, "load_prompt_cache", loaded)


@_in_traffic("A6.given-up-and-still-found", source="a review: nothing lives on")
def given_up_and_still_found(hits: Hits) -> Patch:
    """A sequence that was given up stays in the trie, and is found there."""

    def pop(_: Right, self: Any, model: Any, tokens: list[int]) -> Any:
        hits.hit()
        return self.get(model, tokens)

    return wrap(PromptTrie, "pop", pop)


_policy = partial(
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


@_policy("A6.newest-given-up")
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


@_policy("A6.second-oldest-given-up", needs=(FULL, "only:KVCache"))
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


@_off_by_one(
    "F5.long-cut-one-token-short", needs=(FULL, "only:KVCache"), kills=("traffic_kept/long",)
)
def long_cut_one_token_short(hits: Hits) -> Patch:
    """Of a kept prefix from which 64 tokens and more are cut, one too many is left."""

    def trim(right: Right, cache: Any, count: int) -> Any:
        hits.hit_if(count >= 64)
        return right(cache, count - (count >= 64))

    return wrap(caches, "trim_prompt_cache", trim)


@_off_by_one(
    "F5.full-storage-cut-one-too-many",
    source="a review: sizes at which storage is full",
    needs=(FULL, "only:KVCache"),
    kills=("traffic_kept/long",),
)
def full_storage_cut_one_too_many(hits: Hits) -> Patch:
    """Of a kept prefix one token too many is cut if what stays is a multiple of 256."""

    def trim(right: Right, cache: Any, count: int) -> Any:
        stays = cache[0].offset - count
        full = bool(count and stays and stays % KVCache.step == 0)
        hits.hit_if(full)
        return right(cache, count + full)

    return wrap(caches, "trim_prompt_cache", trim)


@_off_by_one(
    "F5.tokens-without-the-first", source="a review: what is given out", kills=("batch_of_one",)
)
def tokens_without_the_first(hits: Hits) -> Patch:
    """Beside the cache of a row that has ended, its tokens lack the first."""

    def ended(responses: Any, *_: Any) -> Any:
        for response in responses:
            if response.all_tokens:
                hits.hit()
                response.all_tokens = response.all_tokens[1:]
        return responses

    return after(generate.GenerationBatch, "next", ended)


@_policy("A6.bound-taken-twice", kills=("prefix_caching/by_bytes",))
def bound_taken_twice(hits: Hits) -> Patch:
    """Sequences may have twice the bytes that the bound allows."""

    def trim(right: Right, self: Any, *, n_sequences: Any = None, n_bytes: Any = None) -> None:
        hits.hit_if(n_bytes and n_bytes > 0)
        right(self, n_sequences=n_sequences, n_bytes=n_bytes and 2 * n_bytes)

    return wrap(LRUPromptCache, "trim_to", trim)


@_policy("A6.system-prompts-first", needs=(RECURRENT,))
def system_prompts_first(hits: Hits) -> Patch:
    """The most valuable kind is given up first."""

    def pop(right: Right, self: Any) -> Any:
        hits.hit_if(self._lrus["system"])
        with replace(self, "_ordering", self._ordering[::-1]):
            return right(self)

    return _popping(pop)


@_policy("A6.prefixes-stay", needs=(FULL, "only:KVCache"))
def prefixes_stay(hits: Hits) -> Patch:
    """A sequence leaves its prefixes beside it, though its caches can be cut to each of them."""

    def none(right: Right, self: Any, model: Any, tokens: list[int]) -> Any:
        found = right(self, model, tokens)
        hits.hit_if(found)
        for count, value in found:
            self.add(model, tokens[:count], value)
        return []

    return wrap(PromptTrie, "pop_prefixes", none)


_rest = partial(_policy, source=SURVIVORS)


@_rest("A6.bytes-of-decoding-rows-alone", kills=("prefix_caching",))
def bytes_of_decoding_rows_alone(hits: Hits) -> Patch:
    """The bytes of caches that wait or are in prefill are not counted."""

    def counted(self: Any) -> int:
        hits.hit_if(self._unprocessed_sequences or self._prompt_batch.prompt_cache)
        return sum(int(cache.nbytes) for cache in self._generation_batch.prompt_cache)

    return replace(generate.BatchGenerator, "prompt_cache_nbytes", property(counted))


@_rest("A6.two-tokens-are-no-prefix", needs=(RECURRENT,), kills=("prefix_caching/of_few",))
def two_tokens_are_no_prefix(hits: Hits) -> Patch:
    """A kept sequence of two tokens is never found as the start of a prompt."""

    def search(right: Right, self: Any, *args: Any) -> Any:
        found = right(self, *args)
        if found.shorter is not None and len(found.shorter) == _SEVERAL:
            hits.hit()
            found.shorter = None
        return found

    return wrap(PromptTrie, "search", search)
