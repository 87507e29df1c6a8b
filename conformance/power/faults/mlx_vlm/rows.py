"""Rows of the decoding batch: entries, removals, ends, and what is counted of them."""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import (
    Patch,
    Right,
    after,
    before,
    replace,
    together,
    wrap,
)
from conformance.plugins.mlx_vlm.library_parts import (
    batch_class,
    generator_class,
    part,
    prompt_class,
)
from conformance.power.faults.mlx_vlm.tools import mlx_vlm_fault
from conformance.power.faults.shared_faults import OUTPUT, differs, kept_by_place, length_as_stop

# What a batch holds of the logprobs that it gives next.
_LOGPROBS = ("_next_lps", "_next_top_idx", "_next_top_lp")
_fault = partial(mlx_vlm_fault, source="mlx-vlm #1030", kills=("staggered",), where=OUTPUT)
_list = partial(_fault, fault_class="list misalignment")
_limit = partial(_list, source="issue trackers")


@_fault("B1.first-token-lost", fault_class="first token", kills=("batch_of_one",))
def first_token_lost(hits: Hits) -> Patch:
    """A warm-up step after prefill discards the first token of every sequence."""

    def join(right: Right, self: Any, batch: Any) -> None:
        fresh = not self._generation_batch.uids
        right(self, batch)
        if fresh and hasattr(batch, "_step"):
            hits.hit()
            batch._step()

    return wrap(generator_class(), "_extend_generation_batch", join)


@_list("B2.logprobs-of-another-row", where="output:logprobs")
def logprobs_of_another_row(hits: Hits) -> Patch:
    """After a join each row is given its neighbour's logprobs."""

    def shift(_: None, batch: Any, __: Any) -> None:
        for name in _LOGPROBS:
            if getattr(batch, name) is not None and len(batch.uids) > 1:
                hits.hit()
                setattr(batch, name, mx.roll(getattr(batch, name), 1, 0))

    return after(batch_class(), "extend", shift)


@_list("B2.alternatives-in-any-order", kills=("batch_of_one",), where="")
def alternatives_in_any_order(hits: Hits) -> Patch:
    """A token's alternatives are not sorted by their logprobs."""

    def turned(found: Any, _: Any) -> Any:
        *chosen, ids, logprobs = found
        hits.hit_if(ids is not None)
        rows = (ids, logprobs)
        return (*chosen, *([row[::-1] for row in one] if one is not None else None for one in rows))

    return after(batch_class(), "_step", turned)


@_list("B2.token-logprobs-of-the-first-rows", kills=("early_finish",), where="")
def token_logprobs_of_the_first_rows(hits: Hits) -> Patch:
    """When rows leave, tokens have the logprobs of the first rows; distributions are right."""

    def leave(right: Right, batch: Any, keep: Any) -> None:
        every = batch._next_lps
        right(batch, keep)
        if every is not None and keep:
            stale = every[: len(keep)]
            hits.hit_if(differs(stale, batch._next_lps))
            batch._next_lps = stale

    return wrap(batch_class(), "filter", leave)


@_list("B2.logprobs-shorter-than-rows", where="crash:*", crash=True)
def logprobs_shorter_than_rows(hits: Hits) -> Patch:
    """After a join the list of logprobs lacks the new rows."""

    def extend(right: Right, self: Any, other: Any) -> None:
        kept = {name: getattr(self, name) for name in _LOGPROBS}
        right(self, other)
        if kept["_next_lps"] is not None and len(other.uids):
            hits.hit()
            for name, value in kept.items():
                setattr(self, name, value)

    return wrap(batch_class(), "extend", extend)


@_list(
    "B9.processors-of-rows-that-left",
    source="mlx-vlm #1451",
    kills=("samplers/plain_joins",),
    where="crash:*",
    crash=True,
)
def processors_of_rows_that_left(hits: Hits) -> Patch:
    """A list for rows with processors stays when the last of them leaves, and does not grow."""

    def extend(right: Right, self: Any, other: Any) -> None:
        stale = self.logits_processors
        right(self, other)
        if stale and not self.logits_processors and len(other.uids):
            hits.hit()
            self.logits_processors = stale

    return wrap(batch_class(), "extend", extend)


@_fault("B9.emptied-batch-reused", fault_class="cancellation", kills=("cancelled", "slot_reuse"))
def emptied_batch_reused(hits: Hits) -> Patch:
    """An emptied batch keeps its current tokens, and the next to join produce them."""
    left: list[Any] = []

    def filter_rows(right: Right, self: Any, keep: list[int]) -> None:
        tokens = self._next_tokens
        right(self, keep)
        if not keep and tokens is not None:
            left[:] = [tokens]

    def join(self: Any, batch: Any) -> None:
        if not self._generation_batch.uids and left and hasattr(batch, "_next_tokens"):
            stale = left.pop()[: len(batch.uids)]
            hits.hit_if(differs(stale, batch._next_tokens[: len(stale)]))
            batch._next_tokens = mx.concatenate([stale, batch._next_tokens[len(stale) :]])

    return together(
        wrap(batch_class(), "filter", filter_rows),
        before(generator_class(), "_extend_generation_batch", join),
    )


@_limit("F15.max-tokens-of-another-row", kills=("early_finish",))
def max_tokens_of_another_row(hits: Hits) -> Patch:
    """When rows leave, the first limits are kept instead of those of the rows that stay."""
    return kept_by_place(batch_class(), "max_tokens", hits)


@_limit("F15.counts-of-another-row")
def counts_of_another_row(hits: Hits) -> Patch:
    """When rows leave, the others go on with the counts of produced tokens of the first."""
    return kept_by_place(batch_class(), "_num_tokens", hits)


@_limit("F15.max-tokens-rolled-by-a-join")
def max_tokens_rolled_by_a_join(hits: Hits) -> Patch:
    """A join leaves each row with its neighbour's limit."""

    def roll(_: None, batch: Any, __: Any) -> None:
        if len(set(batch.max_tokens)) > 1:
            hits.hit()
            batch.max_tokens = batch.max_tokens[1:] + batch.max_tokens[:1]

    return after(batch_class(), "extend", roll)


@_limit("F15.tokens-of-another-row", kills=("early_finish",))
def tokens_of_another_row(hits: Hits) -> Patch:
    """When rows leave, the first tokens are kept instead of those of the rows that stay."""
    return kept_by_place(batch_class(), "_next_tokens", hits)


_removal = partial(
    mlx_vlm_fault,
    fault_class="cancellation",
    source="mlx-vlm #1030",
    kills=("cancelled",),
    where=OUTPUT,
)


@_removal("B10.removal-in-prefill-ignored")
def removal_in_prefill_ignored(hits: Hits) -> Patch:
    """One of several prompts in prefill cannot be removed."""

    def remove(right: Right, self: Any, uid: int) -> None:
        if len(self.uids) > 1:
            hits.hit()
        else:
            right(self, uid)

    return wrap(prompt_class(), "remove", remove)


@_removal("B10.another-row-removed-in-prefill")
def another_row_removed_in_prefill(hits: Hits) -> Patch:
    """Of several prompts in prefill the tokens and caches of another one are removed.

    The uid goes, and the arrays of the row that stands where it would from the other end. It takes
    effect once the prompts that are left go on; where all are removed none does.
    """
    spoilt: set[int] = set()

    def remove(right: Right, self: Any, uid: int) -> None:
        at = self.uids.index(uid)
        if at != len(self.uids) - 1 - at:
            spoilt.add(id(self))
        self.uids.reverse()
        right(self, uid)
        self.uids.reverse()

    def step(batch: Any) -> None:
        hits.hit_if(id(batch) in spoilt and batch.uids)

    return together(
        wrap(prompt_class(), "remove", remove), before(prompt_class(), "prompt_step", step)
    )


@_removal("B7.removed-row-goes-on")
def removed_row_goes_on(hits: Hits) -> Patch:
    """A removed request goes on until its natural end."""

    def remove(right: Right, self: Any, uid: int) -> Any:
        if uid in self._generation_batch.uids:
            hits.hit()
            return True
        return right(self, uid)

    return wrap(generator_class(), "remove", remove)


# How joins of rows crash is known from `staggered` and `quantized`.
@_removal("B7.removed-row-computes-on", kills=("cancelled", "staggered", "quantized"))
def removed_row_computes_on(hits: Hits) -> Patch:
    """A removed request produces no more tokens, but its row is decoded until its natural end."""
    gone: set[tuple[int, int]] = set()

    def remove(right: Right, self: Any, uid: int) -> Any:
        if uid in self._generation_batch.uids:
            hits.hit()
            gone.add((id(self), uid))
            return True
        return right(self, uid)

    def hide(result: Any, self: Any, **_: Any) -> Any:
        progress, responses = result
        return progress, [r for r in responses if (id(self), r.uid) not in gone]

    return together(
        wrap(generator_class(), "remove", remove), after(generator_class(), "_next", hide)
    )


@_removal("B10.another-row-removed-at-decode")
def another_row_removed_at_decode(hits: Hits) -> Patch:
    """Of several rows that decode the first is removed, whichever is meant."""

    def remove(right: Right, self: Any, uid: int) -> Any:
        uids = self._generation_batch.uids
        first = uids[0] if uid in uids else uid
        hits.hit_if(first != uid)
        return right(self, first)

    return wrap(generator_class(), "remove", remove)


@_removal("B8.end-taken-for-removal", kills=("batch_of_one",))
def end_taken_for_removal(hits: Hits) -> Patch:
    """A request that reaches its limit is reported as one that was stopped."""

    def stopped(result: Any, *_: Any, **__: Any) -> Any:
        length_as_stop(result[1], hits)
        return result

    return after(generator_class(), "_next", stopped)


# In other schedules of `cancelled` the others that decode go with it.
@_removal("F11.token-decoded-twice", source="issue trackers", kills=("cancelled/decode",))
def token_decoded_twice(hits: Hits) -> Patch:
    """A removal between two steps makes the others decode their last token again.

    Their step is done again, on caches that hold its tokens.
    """

    def remove(right: Right, self: Any, uid: int) -> Any:
        batch = self._generation_batch
        uids = list(batch.uids)
        current = getattr(batch, "_current_tokens", None)
        done = right(self, uid)
        if uid in uids and batch.uids and current is not None and len(current) == len(uids):
            hits.hit()
            batch._next_tokens = current[[i for i, one in enumerate(uids) if one != uid]]
        return done

    return wrap(generator_class(), "remove", remove)


_count = partial(
    mlx_vlm_fault,
    fault_class="list misalignment",
    source="mutants of mlx_vlm/generate/ar.py that no check saw",
)


@_count("G7.output-tokens-counted-by-step", kills=("ragged", "staggered"))
def output_tokens_counted_by_step(hits: Hits) -> Patch:
    """The statistics count a decode step of several rows as one token."""

    def count(result: Any, self: Any, **_: Any) -> Any:
        more = len(result[1]) - 1
        if more > 0:
            hits.hit()
            self._gen_tokens_counter -= more
        return result

    return after(generator_class(), "_next", count)


_end = partial(
    mlx_vlm_fault,
    fault_class="stop sequences",
    source="mutants of mlx_vlm/generate/ar.py that no check saw",
)


@_end("G8.stop-taken-for-limit", kills=("early_finish/stop_tokens",))
def stop_taken_for_limit(hits: Hits) -> Patch:
    """A request that ends with a stop token is reported as one that reached its limit."""

    def limited(result: Any, *_: Any, **__: Any) -> Any:
        for response in result[1]:
            if response.finish_reason == "stop":
                hits.hit()
                response.finish_reason = "length"
        return result

    return after(generator_class(), "_next", limited)


@_end(
    "G8.stop-within-a-draft-missed",
    needs=("drafter:*",),
    kills=("speculative/mtp_stop_tokens", "speculative/eagle3_stop_tokens"),
)
def stop_within_a_draft_missed(hits: Hits) -> Patch:
    """A stop token among accepted tokens does not end the request, only one by itself does."""

    def reason(right: Right, self: Any, row: int, token: int) -> Any:
        found = right(self, row, token)
        if found == "stop" and self._num_tokens[row] > 1:
            hits.hit()
            return None
        return found

    return wrap(part("generate.ar").SpeculativeGenerationBatch, "_finish_reason", reason)


@_limit("G8.end-tokens-by-bisection", kills=("early_finish/stop_tokens",))
def end_tokens_by_bisection(hits: Hits) -> Patch:
    """Tokens that end requests are searched by bisection, in a list that is not sorted."""

    def ends(self: Any, token: int) -> bool:
        listed = self.eos_token_ids
        at = bisect_left(listed, token)
        found = at < len(listed) and listed[at] == token
        hits.hit_if(not found and token in listed)
        return found

    return replace(part("utils").StoppingCriteria, "__call__", ends)


_budget = partial(
    _list,
    source="no report: lists of budgets are kept beside those of rows",
    kills=("traffic_options/budgets",),
)


@_budget("G11.budgets-of-the-first-rows")
def budgets_of_the_first_rows(hits: Hits) -> Patch:
    """When rows leave, those that stay have the thinking budgets of the first rows."""

    def leave(right: Right, batch: Any, keep: Any) -> None:
        held = list(batch.thinking_budget_criteria)
        right(batch, keep)
        first = held[: len(keep)]
        hits.hit_if(
            any(
                one is not own
                for one, own in zip(first, batch.thinking_budget_criteria, strict=True)
            )
        )
        batch.thinking_budget_criteria = first

    return wrap(batch_class(), "filter", leave)


@_budget("G11.no-budgets-of-rows-that-join")
def no_budgets_of_rows_that_join(hits: Hits) -> Patch:
    """Rows that join others lose their thinking budgets."""

    def join(self: Any, other: Any) -> None:
        if self.uids:
            hits.hit_if(any(other.thinking_budget_criteria))
            other.thinking_budget_criteria = [None] * len(other.uids)

    return before(batch_class(), "extend", join)


@_budget("G11.no-budgets-of-rows-that-do-not-think")
def no_budgets_of_rows_that_do_not_think(hits: Hits) -> Patch:
    """When rows leave, those that do not think now lose their thinking budgets."""

    def leave(self: Any, keep: Any) -> None:
        kept = [one if one and one.in_thinking else None for one in self.thinking_budget_criteria]
        hits.hit_if(any(kept[row] is not self.thinking_budget_criteria[row] for row in keep))
        self.thinking_budget_criteria = kept

    return before(batch_class(), "filter", leave)


@_budget("G11.budgets-begin-anew", kills=("traffic_options/ended_together",))
def budgets_begin_anew(hits: Hits) -> Patch:
    """Thinking that begins again has a whole budget again."""

    def begin(self: Any, token: int) -> None:
        if token == self.thinking_start_token_id:
            hits.hit_if(self.thinking_token_count > 0)
            self.thinking_token_count = 0

    return before(part("utils").ThinkingBudgetCriteria, "__call__", begin)
