"""Faults of drafts: what stays of the rejected, what is missing of the accepted."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, replace, together, wrap, wrap_each
from conformance.plugins.mlx_vlm.library_parts import cache_class, part
from conformance.power.faults.mlx_vlm.tools import mlx_vlm_fault

_fault = partial(
    mlx_vlm_fault,
    fault_class="speculative",
    source="tokenspeed #205",
    kills=("speculative",),
    where="cache:*",
    needs=("drafter:*",),
)


def _commit(wrong: Callable[..., None]) -> Patch:
    """``wrong(right, model, caches, state, accepted, block)`` in place of the end of a round.

    Each module of drafters imports it by name.
    """
    rounds = (part(f"speculative.{drafter}") for drafter in ("dflash", "eagle3", "mtp"))
    return wrap_each(rounds, "commit_speculative_round", wrong)


def _counts(accepted: Any) -> list[int]:
    if isinstance(accepted, int):
        return [accepted]
    values = accepted.reshape(-1).tolist() if hasattr(accepted, "tolist") else accepted
    return [int(one) for one in values]


def _accepted_as(change: Callable[[list[int], int], list[int]], hits: Hits) -> Patch:
    """Caches keep ``change(accepted, drafted)`` tokens of the drafts of each row."""

    def commit(right: Right, *given: Any) -> None:
        *others, accepted, block = given
        true = _counts(accepted)
        wrong = change(true, block - 1)
        hits.hit_if(wrong != true)
        right(*others, wrong[0] if isinstance(accepted, int) else wrong, block)

    return _commit(commit)


@_fault("E6.rejected-drafts-stay")
def rejected_drafts_stay(hits: Hits) -> Patch:
    """Rejected tokens stay in the caches."""
    return _accepted_as(lambda counts, drafted: [drafted] * len(counts), hits)


@_fault("E6.rejected-tail-of-shorter-rows-stays")
def rejected_tail_of_shorter_rows_stays(hits: Hits) -> Patch:
    """Caches of all rows keep as many tokens as the row that accepted most."""
    return _accepted_as(lambda counts, _: [max(counts)] * len(counts), hits)


@_fault("E7.last-accepted-missing")
def last_accepted_missing(hits: Hits) -> Patch:
    """After a draft that was right to its end the caches lack its last token."""
    return _accepted_as(lambda counts, drafted: [min(n, drafted - 1) for n in counts], hits)


def _not_rolled_back(hits: Hits, *kinds: str) -> Patch:
    """Caches of these classes are left as they were before the rejected tokens were taken back."""

    def commit(right: Right, *given: Any) -> None:
        _, caches, _, accepted, block = given
        left = [c for c in caches if isinstance(c, tuple(map(cache_class, kinds)))]
        whole = [_copied(vars(c)) for c in left]
        right(*given)
        if left and min(_counts(accepted)) < block - 1:
            hits.hit()
            for cache, values in zip(left, whole, strict=True):
                vars(cache).update(values)

    return _commit(commit)


def _copied(values: Any) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value, list) else value
        for name, value in values.items()
        if not callable(value) and name != "_speculation"
    }


@_fault(
    "F9.window-not-rolled-back",
    source="issue trackers",
    needs=("drafter:*", "cache:RotatingKVCache"),
)
def window_not_rolled_back(hits: Hits) -> Patch:
    """A sliding window keeps rejected tokens, and what they pushed out is lost."""
    return _not_rolled_back(hits, "RotatingKVCache", "BatchRotatingKVCache")


def _batch() -> Any:
    """The class of the batch that drafts."""
    return part("generate.ar").SpeculativeGenerationBatch


@_fault(
    "E7.rows-behind-an-ended-one-lose-a-token",
    kills=("speculative/*_ragged",),
    where="output:*",
)
def rows_behind_an_ended_one_lose_a_token(hits: Hits) -> Patch:
    """A row that ended within its draft takes the tokens of the rows behind it with it."""

    def append(right: Right, self: Any, responses: Any, tokens: list[int | None]) -> None:
        for row, token in enumerate(tokens):
            if token is not None and self._finished[row]:
                hits.hit_if(any(other is not None for other in tokens[row + 1 :]))
                tokens = [*tokens[:row], *([None] * (len(tokens) - row))]
                break
        right(self, responses, tokens)

    return wrap(_batch(), "_append_token_responses", append)


@_fault("E6.drafts-verified-greedily", kills=("speculative/*_sampled",), where="output:*")
def drafts_verified_greedily(hits: Hits) -> Patch:
    """Drafts are compared with the likeliest tokens, though the engine has a sampler."""

    def init(right: Right, self: Any, *args: Any, **options: Any) -> None:
        hits.hit_if(not options.get("greedy_sampling"))
        right(self, *args, **{**options, "sampler": partial(mx.argmax, axis=-1)})

    return wrap(_batch(), "__init__", init)


@_fault(
    "E6.drafter-goes-on-from-another-row",
    source="a batch is smaller after a row leaves",
    kills=("traffic_drafts/*_equal",),
    # laguna, whose only drafter is for dflash, raises before a row leaves.
    needs=("drafter:mtp|drafter:eagle3",),
    where="output:*",
)
def drafter_goes_on_from_another_row(hits: Hits) -> Patch:
    """After a row leaves, drafts go on from another row's hidden state: they are only wasted."""

    def draft(batch: Any, right: Right, last: Any, hidden: Any, *args: Any, **options: Any) -> Any:
        left = any(batch._finished) and len(batch) > 1
        if not isinstance(last, int) and left:
            hits.hit()
            hidden = mx.roll(hidden, 1, 0)
            # Some drafters keep the hidden state of each row themselves.
            drafter = batch.draft_model
            if getattr(drafter, "_seed_hidden", None) is not None:
                drafter._seed_hidden = mx.roll(drafter._seed_hidden, 1, 0)
        elif left:  # row after row
            before, batch.hidden = batch.hidden, hidden
            if before is not None and before.shape == hidden.shape:
                hits.hit()
                hidden = before
        return right(last, hidden, *args, **options)

    def start(right: Right, self: Any) -> None:
        if self._rounds_iter is None:
            greedy = hasattr(self.draft_model, "draft_block_greedy")
            name = "draft_block_greedy" if greedy else "draft_block"
            setattr(self.draft_model, name, partial(draft, self, getattr(self.draft_model, name)))
        right(self)

    return wrap(_batch(), "_start_rounds", start)


@_fault(
    "E6.whole-drafts-count-as-none",
    source="a review: an argmax of no mismatch",
    kills=("traffic_drafts/*_equal",),
    needs=("drafter:dflash",),
    where="output:*",
)
def whole_drafts_count_as_none(hits: Hits) -> Patch:
    """Of a row whose draft was right to its end no token is accepted: they are only wasted."""

    def walk(right: Right, drafts: mx.array, target: mx.array, budgets: list[int]) -> Any:
        accepted, tokens = right(drafts, target, budgets)
        first: Any = target[:, :1].tolist()
        for row, count in enumerate(accepted):
            if count == drafts.shape[1]:
                hits.hit()
                accepted[row], tokens[row] = 0, first[row][: budgets[row]]
        return accepted, tokens

    return wrap(part("speculative.dflash"), "_speculative_walk_batch", walk)


@_fault(
    "E6.accepted-counts-of-the-first-row",
    source="a review: counts beside the tokens",
    kills=("traffic_drafts/*_equal",),
    needs=("drafter:dflash",),
    where="",
)
def accepted_counts_of_the_first_row(hits: Hits) -> Patch:
    """Tokens are right; for each row as many accepted ones are counted as for the first."""
    rounds, first = part("speculative.dflash"), list[int]()

    def walk(right: Right, *given: Any) -> Any:
        accepted, tokens = right(*given)
        first[:] = accepted[:1]
        return accepted, tokens

    def record(right: Right, drafter: Any, accepted: int, drafted: int) -> None:
        hits.hit_if(first and first[0] != accepted)
        right(drafter, *(first or [accepted]), drafted)

    return together(
        wrap(rounds, "_speculative_walk_batch", walk),
        wrap(rounds, "_record_speculative_round", record),
    )


@_fault(
    "E6.block-positions-by-place",
    source="a review: positions place by place, not row by row",
    kills=("speculative/*_sampled",),
    needs=("drafter:dflash",),
    where="output:*",
)
def block_positions_by_place(hits: Hits) -> Patch:
    """A sampler gets the positions of a block's tokens in the order of other rows."""

    def sample(
        right: Right, logits: mx.array, sampler: Any, *, row_ids: Any, base_positions: list[int]
    ) -> Any:
        rows, places, _ = logits.shape

        given = sampler.sample_target

        def sample_target(logprobs: mx.array, *, row_ids: Any, positions: list[int]) -> Any:
            wrong = [positions[row * places + at] for at in range(places) for row in range(rows)]
            hits.hit_if(wrong != positions)
            return given(logprobs, row_ids=row_ids, positions=wrong)

        with replace(sampler, "sample_target", sample_target):
            return right(logits, sampler, row_ids=row_ids, base_positions=base_positions)

    return wrap(part("speculative.dflash"), "_sample_dflash_target_block", sample)


@_fault(
    "F9.window-kept-without-a-copy",
    source="a review: arrays that are written in place",
    kills=("speculative", "traffic_drafts"),
    # Of models whose windows are rolled back by a transaction.
    needs=("drafter:mtp", "cache:RotatingKVCache", "cache:PoolingCache"),
)
def window_kept_without_a_copy(hits: Hits) -> Patch:
    """What a sliding window returns to after a rejection is no copy: its offsets go on."""

    def init(right: Right, self: Any, cache: Any) -> None:
        shared = dict(vars(cache))
        right(self, cache)
        self.original = shared

    def abort(right: Right, self: Any) -> None:
        hits.hit_if(bool(self.updates))
        right(self)

    kept = part("speculative.cache_state")._RotatingCacheTransaction
    return together(wrap(kept, "__init__", init), wrap(kept, "abort", abort))


@_fault(
    "E6.replay-from-the-best-row",
    source="a review: one place for all rows",
    kills=("traffic_drafts/*_equal",),
    needs=("drafter:mtp", "cache:PoolingCache", "cache:ArraysCache"),
    where="output:*",
)
def replay_from_the_best_row(hits: Hits) -> Patch:
    """Each row drafts on from the place where the row that accepted most has its last token."""

    def replay(
        right: Right, hidden: mx.array, drafts: mx.array, accepted: list[int], *rest: Any
    ) -> Any:
        best = max(accepted)
        hits.hit_if(min(accepted) < best)
        places = mx.arange(hidden.shape[1])[None] == mx.array(accepted)[:, None]
        moved = mx.where(places[..., None], hidden[:, best : best + 1], hidden)
        return right(moved, drafts, accepted, *rest)

    drafter = part("speculative.drafters.glm5_next_mtp.glm5_next_mtp")
    return wrap(drafter, "_prepare_ragged_mtp_replay", replay)


_drawn = partial(
    _fault,
    source="a review: drafts of rows that draw at random",
    kills=("traffic_drafts/*_drawn",),
    where="output:*",
)


@_drawn("E6.temperature-twice", needs=("drafter:dflash",))
def temperature_twice(hits: Hits) -> Patch:
    """Where rows verify drafts together, they draw at four fifths of their temperature."""

    def logprobs(right: Right, logits: mx.array) -> mx.array:
        found: mx.array = right(logits)
        if logits.shape[0] == 1:
            return found
        hits.hit()
        return right(found / 0.8)  # type: ignore[no-any-return]

    return wrap(part("speculative.dflash"), "_dflash_target_logprobs", logprobs)


# Families with media draw with another drafter; with this one their drafts are compared.
@_drawn("E6.likely-drafts-accepted", kills=("traffic_drafts/mtp_*",), needs=("drafter:mtp",))
def likely_drafts_accepted(hits: Hits) -> Patch:
    """Where rows verify drafts together, a draft with a probability of 0.1 is always accepted."""
    module = part("speculative.mtp")
    drafted: list[mx.array] = []

    def walk(right: Right, model: Any, hidden: Any, drafts: mx.array, *more: Any, **kw: Any) -> Any:
        drafted.append(drafts)
        try:
            return right(model, hidden, drafts, *more, **kw)
        finally:
            drafted.pop()

    def sample(right: Right, sampler: Any, logprobs: mx.array, *places: Any) -> Any:
        drawn, at = right(sampler, logprobs, *places), places[-1]
        if not drafted or logprobs.shape[0] == 1 or at >= drafted[-1].shape[1]:
            return drawn
        hits.hit()
        own = drafted[-1][:, at]
        chance = mx.take_along_axis(mx.exp(logprobs), own[:, None].astype(mx.int32), -1)[:, 0]
        return mx.where(chance > 0.1, own.astype(drawn.dtype), drawn)

    walks = ("_speculative_walk_batch_deferred_greedy", "_speculative_walk_batch_deferred_uniform")
    patches = [wrap(module, name, walk) for name in walks]
    return together(*patches, wrap(module, "_sample_mtp_target", sample))
