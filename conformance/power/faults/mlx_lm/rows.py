"""Rows of a batch: entries beside it, removals, ends by stop sequences, threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, together, wrap
from conformance.power.faults.mlx_lm.tools import (
    generate,
    mlx_lm_fault,
)
from conformance.power.faults.shared_faults import OUTPUT, kept_by_place, length_as_stop

_GENERATOR, _BATCH = generate.BatchGenerator, generate.GenerationBatch
_fault = partial(mlx_lm_fault, source="mlx-vlm #1030", where=OUTPUT)
_list = partial(_fault, fault_class="list misalignment")
_sampler = partial(_list, source="issue trackers: samplers after a row has left")
_limit = partial(_list, source="issue trackers: max_tokens after a row has left")


@_fault("B1.first-sampled-token-lost", fault_class="first token", kills=("batch_of_one",))
def first_sampled_token_lost(hits: Hits) -> Patch:
    """A warm-up step discards the first token that is sampled for each request."""

    def warm_up(_: None, self: Any, *__: Any, **___: Any) -> None:
        if self.uids:
            hits.hit()
            self._step()

    return after(_BATCH, "__init__", warm_up)


@_list("B2.logprobs-of-other-rows", kills=("staggered", "ragged"), where="output:logprobs")
def logprobs_of_other_rows(hits: Hits) -> Patch:
    """After a join the logprobs are in another order than the rows."""

    def extend(right: Right, self: Any, batch: Any) -> None:
        rows = len(self._next_logprobs) if self.uids else 0
        right(self, batch)
        if rows and len(self._next_logprobs) > rows:
            hits.hit()
            self._next_logprobs = self._next_logprobs[rows:] + self._next_logprobs[:rows]

    return wrap(_BATCH, "extend", extend)


@_fault("B9.old-tokens-reused", fault_class="cancellation", kills=("prompt_cache", "cancelled"))
def old_tokens_reused(hits: Hits) -> Patch:
    """A batch that was emptied keeps its tokens, and those who join next produce them."""
    left: list[Any] = []

    def filter_rows(right: Right, batch: Any, keep: Sequence[int]) -> None:
        if not keep:
            left[:] = [batch._next_tokens]
        right(batch, keep)

    def extend(right: Right, batch: Any, other: Any) -> None:
        was_empty = not batch.uids
        right(batch, other)
        if was_empty and left and left[0] is not None:
            hits.hit()
            old = left.pop()
            rows = min(old.size, batch._next_tokens.size)
            batch._next_tokens[:rows] = old[:rows]

    return together(wrap(_BATCH, "filter", filter_rows), wrap(_BATCH, "extend", extend))


@_sampler("F1.sampler-inherited", kills=("early_finish", "samplers"))
def sampler_inherited(hits: Hits) -> Patch:
    """When a row leaves, the next one inherits its sampler."""
    return kept_by_place(_BATCH, "samplers", hits)


@_limit("F15.limit-of-another-row", kills=("early_finish", "cancelled"))
def limit_of_another_row(hits: Hits) -> Patch:
    """When a row leaves, the next one inherits how many tokens it may produce."""
    return kept_by_place(_BATCH, "max_tokens", hits)


@_limit("F15.count-of-another-row", kills=("samplers", "stop_sequences"))
def count_of_another_row(hits: Hits) -> Patch:
    """When a row leaves, the next one inherits how many tokens it has produced."""
    return kept_by_place(_BATCH, "_num_tokens", hits)


@_limit("F15.limits-of-the-first-64", source="a review: nothing is many", kills=("marathon/many",))
def limits_of_the_first_64(hits: Hits) -> Patch:
    """Of one call's prompts, those after the first 64 get the limits of these again."""

    def insert(right: Right, self: Any, segments: Any, limits: Any = None, *more: Any) -> Any:
        count = len(segments)
        hits.hit_if(limits and count > 64)
        limits = limits and [limits[number % 64] for number in range(count)]
        return right(self, segments, limits, *more)

    return wrap(_GENERATOR, "insert_segments", insert)


@_limit("F15.default-limit-plus-one", source="a review: ends", kills=("traffic/few_slots",))
def default_limit_plus_one(hits: Hits) -> Patch:
    """A request without a limit of its own produces one token more than the generator's limit."""

    def insert(right: Right, self: Any, segments: Any, limits: Any = None, *more: Any) -> Any:
        hits.hit_if(limits is None)
        return right(self, segments, limits or [self.max_tokens + 1] * len(segments), *more)

    return wrap(_GENERATOR, "insert_segments", insert)


@_list("F1.histories-change-places", source="a review: rows repeat", kills=("marathon/many",))
def histories_change_places(hits: Hits) -> Patch:
    """When rows leave a batch of nine and more, the last row's history fills their places."""

    def filter_rows(right: Right, self: Any, keep: Any) -> None:
        histories, kept = list(self._token_context), set(keep)
        right(self, keep)
        if len(kept) < len(histories) and len(histories) > 8 and kept:
            hits.hit()
            for gone in sorted(set(range(len(histories))) - kept, reverse=True):
                last = histories.pop()
                if gone < len(histories):
                    histories[gone] = last
            self._token_context = histories

    return wrap(_BATCH, "filter", filter_rows)


Uids = Sequence[int]
_removal = partial(
    mlx_lm_fault,
    fault_class="cancellation",
    source="mlx-vlm #1030",
    kills=("cancelled",),
    where=OUTPUT,
)


@_removal("B7.removed-row-decodes-on")
def removed_row_decodes_on(hits: Hits) -> Patch:
    """A removed request keeps decoding until its own end."""

    def remove(right: Right, self: Any, uids: Uids, **options: Any) -> Any:
        removed = [uid for uid in uids if uid not in self._generation_batch.uids]
        hits.hit_if(len(removed) < len(uids))
        return right(self, removed, **options)

    return wrap(_GENERATOR, "remove", remove)


@_removal("B8.end-taken-for-a-removal", kills=("batch_of_one",))
def end_taken_for_a_removal(hits: Hits) -> Patch:
    """A request that has produced all its tokens is reported as stopped from outside."""

    def stopped(responses: Any, _: Any) -> Any:
        length_as_stop(responses, hits)
        return responses

    return after(_BATCH, "next", stopped)


@_removal("B10.prefill-not-removed")
def prefill_not_removed(hits: Hits) -> Patch:
    """A removal while one of several rows in prefill does nothing."""

    def remove(right: Right, self: Any, uids: Uids, **options: Any) -> Any:
        prompts = self._prompt_batch.uids
        ignored = set(prompts) if len(prompts) > 1 else set()
        removed = [uid for uid in uids if uid not in ignored]
        hits.hit_if(len(removed) < len(uids))
        return right(self, removed, **options)

    return wrap(_GENERATOR, "remove", remove)


@_removal("B10.neighbour-in-prefill-removed")
def neighbour_in_prefill_removed(hits: Hits) -> Patch:
    """A removal while one of several rows in prefill takes out the next row."""

    def remove(right: Right, self: Any, uids: Uids, **options: Any) -> Any:
        prompts = list(self._prompt_batch.uids)
        after_it = dict(zip(prompts, prompts[1:] + prompts[:1], strict=True))
        wrong = [after_it.get(uid, uid) for uid in uids]
        hits.hit_if(set(wrong) != set(uids))
        return right(self, wrong, **options)

    return wrap(_GENERATOR, "remove", remove)


@_removal("B10.prompts-of-the-neighbours")
def prompts_of_the_neighbours(hits: Hits) -> Patch:
    """After a removal in prefill each row goes on with the next row's prompt."""

    def remove(right: Right, self: Any, uids: Uids, **options: Any) -> Any:
        prompts, work = list(self._prompt_batch.uids), list(self._currently_processing)
        answer = right(self, uids, **options)
        if 0 < len(self._currently_processing) < len(work):
            left = self._currently_processing
            keep = [(i + 1) % len(prompts) for i, uid in enumerate(prompts) if uid not in uids]
            wrong = [work[i] for i in keep]
            pairs = zip(wrong, left, strict=True)
            hits.hit_if(any(mine is not theirs for mine, theirs in pairs))
            self._currently_processing = wrong
        return answer

    return wrap(_GENERATOR, "remove", remove)


@_removal(
    "B10.late-request-not-removed", source="a review: nothing is many", kills=("marathon/many",)
)
def late_request_not_removed(hits: Hits) -> Patch:
    """Of the requests after the first 257 none is removed."""

    def remove(right: Right, self: Any, uids: Uids, **options: Any) -> Any:
        known = [uid for uid in uids if uid <= 256]
        hits.hit_if(len(known) < len(uids))
        return right(self, known, **options)

    return wrap(_GENERATOR, "remove", remove)


@_removal("F11.step-done-again", source="issue trackers: retry after an abort")
def step_done_again(hits: Hits) -> Patch:
    """After a removal in decode the next token is put into the caches twice.

    The interrupted step is done again, with its token in the caches already.
    """
    due = False

    def remove(right: Right, self: Any, uids: Uids, **options: Any) -> Any:
        nonlocal due
        decoding = set(self._generation_batch.uids)
        due = bool(decoding & set(uids)) and bool(decoding - set(uids))
        return right(self, uids, **options)

    def step(right: Right, batch: Any) -> Any:
        nonlocal due
        if due:
            hits.hit()
            batch.model(batch._next_tokens[:, None], cache=batch.prompt_cache)
            due = False
        return right(batch)

    return together(wrap(_GENERATOR, "remove", remove), wrap(_BATCH, "_step", step))


_stop = partial(
    mlx_lm_fault,
    fault_class="stop sequences",
    source="issue trackers: stop sequences of a reused slot",
    kills=("stop_sequences",),
    where=OUTPUT,
)


@_stop("F14.match-begins-anew-at-a-join")
def match_begins_anew_at_a_join(hits: Hits) -> Patch:
    """When a request joins, the last row before it forgets what it had matched so far."""

    def extend(right: Right, self: Any, batch: Any) -> None:
        if last := len(self.uids):
            matcher = self._matchers[last - 1]
            hits.hit_if(matcher._node is not matcher._root)
            self._matchers[last - 1] = self.stop_sequences[last - 1].matcher()
        right(self, batch)

    return wrap(_BATCH, "extend", extend)


@_stop("F14.sequences-of-the-first-64", source="a review: ends", kills=("traffic",))
def sequences_of_the_first_64(hits: Hits) -> Patch:
    """Of a request's stop sequences the first 64 count."""

    def build(right: Right, sequences: Any) -> Any:
        hits.hit_if(len(sequences) > 64)
        return right(list(sequences)[:64])

    return wrap(generate, "_build_trie", build)


@_stop("F14.last-four-tokens", source="a review: ends", kills=("traffic/few_slots",))
def last_four_tokens(hits: Hits) -> Patch:
    """Of a stop sequence the last four tokens count."""

    def build(right: Right, sequences: Any) -> Any:
        short = [own if isinstance(own, int) else list(own)[-4:] for own in sequences]
        hits.hit_if(any(not isinstance(own, int) and len(own) > 4 for own in sequences))
        return right(short)

    return wrap(generate, "_build_trie", build)


@_stop(
    "F14.matcher-of-the-last-removed",
    source="a review: nothing lives on",
    kills=("traffic/few_slots",),
)
def matcher_of_the_last_removed(hits: Hits) -> Patch:
    """If the last row is removed, its place among the matches begun stays for the next request."""

    def remove(right: Right, self: Any, uids: Uids, **options: Any) -> Any:
        batch = self._generation_batch
        matchers = list(batch._matchers)
        found = right(self, uids, **options)
        if matchers and not batch.uids:
            hits.hit()
            batch._matchers = matchers
        return found

    return wrap(_GENERATOR, "remove", remove)


@_stop(
    "F14.matchers-used-again",
    source="a review: nothing lives on",
    kills=("stop_sequences/rest_of_another",),
)
def matchers_used_again(hits: Hits) -> Patch:
    """Another request with equal sequences goes on with the matcher of a row that has left."""
    free: dict[int, Any] = {}

    def leave(right: Right, batch: Any, keep: Any) -> Any:
        for row in set(range(len(batch._matchers))) - set(keep):
            free[id(batch.stop_sequences[row])] = batch._matchers[row]
        return right(batch, keep)

    def matcher(right: Right, self: Any) -> Any:
        kept = free.pop(id(self), None)
        hits.hit_if(kept is not None and kept._node is not kept._root)
        return kept or right(self)

    return together(wrap(_BATCH, "filter", leave), wrap(generate.StopSequences, "matcher", matcher))


@_stop(
    "G6.begun-in-the-prompt",
    source="no report: StopSequences guards against it",
    kills=("stop_sequences/edges",),
)
def begun_in_the_prompt(hits: Hits) -> Patch:
    """The prompt's last token counts as part of a sequence."""

    def begin(_: None, self: Any, *args: Any, **options: Any) -> None:
        inputs = options["inputs"] if "inputs" in options else args[2]
        for matcher, token in zip(self._matchers, inputs.tolist(), strict=True):
            matcher.advance(token)
            hits.hit_if(matcher._node is not matcher._root)

    return after(_BATCH, "__init__", begin)


@mlx_lm_fault(
    "C6.stream-of-another-thread",
    fault_class="threads",
    source="mlx-vlm #1055",
    kills=("threads",),
    where="crash:*generate.py*",
    crash=True,
)
def stream_of_another_thread(hits: Hits) -> Patch:
    """Decoding runs on a stream that only the thread which loaded the model has."""
    loading, stream = threading.current_thread(), mx.new_stream(mx.default_device())

    def keep_stream(_: None, self: Any, *__: Any, **___: Any) -> None:
        self._stream = stream

    def step(right: Right, self: Any) -> Any:
        try:
            return right(self)
        except RuntimeError:
            hits.hit_if(threading.current_thread() is not loading)
            raise

    return together(
        after(_GENERATOR, "__init__", keep_stream),
        wrap(_GENERATOR, "next", step),
    )


@mlx_lm_fault(
    "G10.last-group-of-odd-bits",
    fault_class="quantized weights",
    source="a review: weights of 3, 5 and 6 bits, as mixed recipes make them",
    needs=("family:*-mixed-bits",),
    kills=("traffic", "ragged"),
    where="module:*",
)
def last_group_of_odd_bits(hits: Hits) -> Patch:
    """Products with weights of 3, 5 or 6 bits leave out the last group of several rows."""

    def product(right: Right, x: mx.array, *args: Any, **options: Any) -> mx.array:
        odd = options.get("bits") in (3, 5, 6)
        if odd and x.ndim == 3 and x.shape[0] > 1 and x.shape[1] == 1:
            hits.hit()
            kept = x.shape[-1] - options["group_size"]
            x = mx.where(mx.arange(x.shape[-1]) < kept, x, 0)
        out: mx.array = right(x, *args, **options)
        return out

    return wrap(mx, "quantized_matmul", product)


@mlx_lm_fault(
    "G10.packed-product-of-row-0",
    fault_class="quantized weights",
    source="a review of what no check sees: weights of 4 bits, as most people run them",
    needs=("family:*-4bit|family:*-8bit|family:*-bits",),
    kills=("ragged", "traffic"),
    where="module:*",
)
def packed_product_of_row_0(hits: Hits) -> Patch:
    """A quantized matrix product in a decoding step scales all rows but the first wrongly."""

    def product(right: Right, x: mx.array, *args: Any, **options: Any) -> mx.array:
        out: mx.array = right(x, *args, **options)
        if x.ndim < 3 or x.shape[0] == 1 or x.shape[-2] > 1:
            return out
        hits.hit()
        return mx.concatenate([out[:1], out[1:] * 1.05])

    return wrap(mx, "quantized_matmul", product)
