"""What the generator and the store report and give away, and what samplers draw and count."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
from mlx_lm import sample_utils
from mlx_lm.models import cache as caches
from mlx_lm.models.cache import ArraysCache, BatchRotatingKVCache, LRUPromptCache, PromptTrie

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, replace, together, wrap
from conformance.power.faults.mlx_lm.tools import (
    RECURRENT,
    ROTATING,
    generate,
    mlx_lm_fault,
)

_fault = partial(
    mlx_lm_fault, source="mutants that survived", fault_class="prefix cache policy", where="cache:*"
)
_STORAGE = partial(_fault, fault_class="storage", where="cache:*RotatingKVCache:*")
_SAMPLING = partial(_fault, fault_class="samplers", where="")
_TWO = 2


@_fault("A6.kept-cache-given-away", needs=(RECURRENT,), kills=("prefix_caching",))
def kept_cache_given_away(hits: Hits) -> Patch:
    """What is found is what is kept, and no copy: whoever decodes with it changes it."""

    def fetch(right: Right, self: Any, *args: Any) -> Any:
        with replace(caches, "copy", SimpleNamespace(deepcopy=list)):
            found = right(self, *args)
        hits.hit_if(found[0])
        return found

    return wrap(LRUPromptCache, "fetch_nearest_cache", fetch)


@_fault("A6.bytes-of-decoding-rows-alone", kills=("prefix_caching",))
def bytes_of_decoding_rows_alone(hits: Hits) -> Patch:
    """The bytes of caches that wait or are in prefill are not counted."""

    def counted(self: Any) -> int:
        hits.hit_if(self._unprocessed_sequences or self._prompt_batch.prompt_cache)
        return sum(int(cache.nbytes) for cache in self._generation_batch.prompt_cache)

    return replace(generate.BatchGenerator, "prompt_cache_nbytes", property(counted))


@_fault("A6.two-tokens-are-no-prefix", needs=(RECURRENT,), kills=("prefix_caching/of_few",))
def two_tokens_are_no_prefix(hits: Hits) -> Patch:
    """A kept sequence of two tokens is never found as the start of a prompt."""

    def search(right: Right, self: Any, *args: Any) -> Any:
        found = right(self, *args)
        if found.shorter is not None and len(found.shorter) == _TWO:
            hits.hit()
            found.shorter = None
        return found

    return wrap(PromptTrie, "search", search)


@_STORAGE("A8.free-storage-kept", needs=(ROTATING,), kills=("prompt_cache/brief",))
def free_storage_kept(hits: Hits) -> Patch:
    """A row that is taken out of a rotating cache that is not full brings free columns along."""

    def extract(right: Right, self: Any, idx: int) -> Any:
        free = not self.rotated and self.keys.shape[2] > self._idx
        hits.hit_if(free)
        with replace(self, "_idx", self.keys.shape[2] if free else self._idx):
            return right(self, idx)

    return wrap(BatchRotatingKVCache, "extract", extract)


@partial(_fault, crash=True, fault_class="list out of sync", where="")(
    "A10.joining-rows-counted-as-one", needs=(RECURRENT,), kills=("samplers/two_into_prefill",)
)
def joining_rows_counted_as_one(hits: Hits) -> Patch:
    """Rows that join with empty recurrent caches are taken for a single one."""

    def size(self: Any) -> int:
        rows = next((c.shape[0] for c in self.cache if c is not None), 1)
        hits.hit_if(self.empty() and self.left_padding is not None and self.left_padding.size > 1)
        return int(rows)

    return replace(ArraysCache, "batch_size", property(size))


@_fault("A6.bytes-of-the-last-one-alone", kills=("prefix_caching/by_number",))
def bytes_of_the_last_one_alone(hits: Hits) -> Patch:
    """After a sequence was given up, the bytes of all are those of the one that went."""

    def pop(right: Right, self: Any, model: Any, tokens: list[int]) -> Any:
        gone.append(right(self, model, tokens))
        return gone[-1]

    def insert(right: Right, self: Any, *args: Any, **options: Any) -> None:
        gone.clear()
        right(self, *args, **options)
        if gone:
            hits.hit()
            self._n_bytes = gone[-1].nbytes

    gone: list[Any] = []
    return together(wrap(PromptTrie, "pop", pop), wrap(LRUPromptCache, "insert_cache", insert))


@_SAMPLING("D8.history-never-computed", kills=("held/decoding",))
def history_never_computed(hits: Hits) -> Patch:
    """The tokens kept for processors are computed only if one of them looks at these."""

    def compute(right: Right, *arrays: Any) -> None:
        hits.hit_if(arrays[2:] and arrays[2])
        right(*arrays[:2])

    return wrap(mx, "async_eval", compute)


@_SAMPLING("F2.temperature-upside-down", kills=("samplers/drawn_warm",))
def temperature_upside_down(hits: Hits) -> Patch:
    """Logits are multiplied by the temperature."""

    def draw(_: Right, logits: mx.array, temp: float) -> mx.array:
        hits.hit_if(temp != 1)
        return mx.random.categorical(logits * temp)

    return wrap(sample_utils, "categorical_sampling", draw)


@_SAMPLING("F2.least-share-of-all-rows", kills=("samplers/drawn_least", "samplers/drawn_share"))
def least_share_of_all_rows(hits: Hits) -> Patch:
    """Min-p measures the tokens of a row by the likeliest token of all rows."""

    def apply(right: Right, logprobs: mx.array, *args: Any) -> mx.array:
        hits.hit_if(logprobs.shape[0] > 1)
        more = logprobs.max() - logprobs.max(axis=-1, keepdims=True)
        best = mx.argmax(logprobs, axis=-1, keepdims=True)
        raised = mx.take_along_axis(logprobs, best, axis=-1) + more
        kept = right(mx.put_along_axis(logprobs, best, raised, axis=-1), *args)
        return mx.where(mx.isinf(kept), kept, logprobs)

    return wrap(sample_utils, "apply_min_p", apply)


def _processor(change: Callable[..., Any], name: str) -> Patch:
    """``change(right, tokens, logits)`` is the processor in place of what ``name`` makes."""

    def make(right: Right, *args: Any) -> Any:
        return partial(change, right(*args))

    return wrap(sample_utils, name, make)


@_SAMPLING("D8.first-token-is-no-history", kills=("samplers/of_one_token",))
def first_token_is_no_history(hits: Hits) -> Patch:
    """A history of a single token is not penalised."""

    def penalise(right: Right, tokens: mx.array, logits: mx.array) -> Any:
        hits.hit_if(len(tokens) == 1)
        return right(tokens, logits) if len(tokens) > 1 else logits

    return _processor(penalise, "make_repetition_penalty")


@_SAMPLING("D8.one-token-too-many-counted", kills=("samplers/of_twenty",))
def one_token_too_many_counted(hits: Hits) -> Patch:
    """Frequency penalties count one token more than they are made for."""

    def make(right: Right, penalty: float, context_size: int) -> Any:
        def process(tokens: mx.array, logits: mx.array) -> Any:
            hits.hit_if(len(tokens) > context_size)
            return right(penalty, context_size + 1)(tokens, logits)

        return process

    return wrap(sample_utils, "make_frequency_penalty", make)


@_SAMPLING("F14.match-inside-another-lost", kills=("stop_sequences/edges",))
def match_inside_another_lost(hits: Hits) -> Patch:
    """A sequence that ends inside of a longer one is missed while that one goes on."""

    def build(right: Right, sequences: Any) -> Any:
        trie = right(sequences)
        whole = {(s,) if isinstance(s, int) else tuple(s) for s in sequences}
        todo: list[tuple[tuple[int, ...], Any]] = [((), trie)]
        while todo:
            path, node = todo.pop()
            if path not in whole and node.pop("__match__", None) is not None:
                hits.hit()
            todo += [((*path, t), child) for t, child in node.items() if isinstance(t, int)]
        return trie

    return wrap(generate, "_build_trie", build)
