"""Faults of drafts: what stays of rejected tokens in caches, penalties and grammars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import mlx.core as mx
import msgspec

from conformance.backend.cache_entries import leaves
from conformance.backend.sampling import GrammarProcessor
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, before, together, wrap
from conformance.core.trace import FinishReason
from conformance.power.faults.reference_engine.tools import reference_fault
from conformance.power.faults.shared_faults import OUTPUT
from conformance.reference import drafting
from conformance.reference.forward import Feed
from conformance.reference.sequence import Sequence as Row

_fault = partial(
    reference_fault,
    fault_class="speculative",
    source="tokenspeed #205",
    kills=("structured", "speculative"),
    where="cache:*",
)
_output = partial(_fault, kills=("structured",), where=OUTPUT)


@_fault("E6.rejected-drafts-stay")
def rejected_drafts_stay(hits: Hits) -> Patch:
    """Rejected tokens stay in a row's caches."""

    def settle(right: Right, row: Any, feed: Feed, count: int) -> list[Feed]:
        again: list[Feed] = right(row, Feed(feed.caches, feed.tokens[:count]), count)
        hits.hit_if(count < len(feed.tokens))
        return again

    return wrap(drafting, "_settle", settle)


def _rejected(draft: Sequence[int], chosen: Sequence[Any]) -> tuple[int, ...]:
    """What of a draft was not accepted; nothing where its request ended."""
    ended = chosen[-1][2] is not None
    return () if ended else tuple(draft[len(chosen) - 1 :])


@_output("E6.rejected-drafts-in-grammar", fault_class="structured output")
def rejected_drafts_in_grammar(hits: Hits) -> Patch:
    """A grammar has moved on by tokens that were then rejected."""

    def accepted(right: Right, row: Any, draft: Sequence[int], logits: mx.array) -> Any:
        known = row.tokens
        chosen = right(row, draft, logits)
        rejected = _rejected(draft, chosen)
        for processor in row.processors:
            if rejected and isinstance(processor, GrammarProcessor):
                hits.hit()
                accepted = draft[: len(chosen) - 1]
                processor.grammar.advance([*known, *accepted, *rejected])
        return chosen

    return wrap(drafting, "_accepted", accepted)


@_output("E6.rejected-drafts-in-penalties", fault_class="samplers")
def rejected_drafts_in_penalties(hits: Hits) -> Patch:
    """Penalties count tokens that were rejected."""
    rejected: WeakKeyDictionary[Any, list[int]] = WeakKeyDictionary()

    def note(chosen: Any, row: Any, draft: Sequence[int], _: mx.array) -> Any:
        rejected.setdefault(row, []).extend(_rejected(draft, chosen))
        return chosen

    def choose(right: Right, row: Any, logits: mx.array, tokens: Sequence[int]) -> Any:
        more = rejected.get(row, [])
        counting = [p for p in row.processors if not isinstance(p, GrammarProcessor)]
        if not more or not counting:
            return right(row, logits, tokens)
        hits.hit()
        return right(row, logits, [*tokens, *more])

    return together(after(drafting, "_accepted", note), wrap(Row, "choose", choose))


@_fault("E7.last-accepted-missing")
def last_accepted_missing(hits: Hits) -> Patch:
    """After a draft that was accepted whole a row's caches lack its last token."""

    def settle(right: Right, row: Any, feed: Feed, count: int) -> list[Feed]:
        caches = row.caches
        again: list[Feed] = right(row, feed, count)
        if not 1 < count == len(feed.tokens):
            return again
        hits.hit()
        row.caches = caches
        return [Feed(caches, feed.tokens[:-1])]

    return wrap(drafting, "_settle", settle)


@_fault("E7.draft-lacks-accepted", where="output:*")
def draft_lacks_accepted(hits: Hits) -> Patch:
    """After a draft that was accepted whole the draft model's caches lack a token."""

    def skip(drafts: Any, rows: Any, _: Any) -> None:
        block = drafts._drafting.block_size or 0
        for row in rows:
            if row.draft_fed and len(row.tokens) - row.draft_fed == block:
                hits.hit()
                row.draft_fed += 1

    return before(drafting.Drafts, "_draft", skip)


def _not_rolled_back(spoil: Callable[[Any, Any, int], bool], hits: Hits) -> Patch:
    """Caches are after a round what they were when all of the draft was in them.

    Of those for which ``spoil(cache, cache with the draft, rejected tokens)`` gives true.
    """
    trials: list[tuple[Any, Feed, int]] = []

    def note(feed: Feed, row: Any, _: Any) -> Feed:
        trials.append((row, feed, len(row.history)))
        return feed

    def verify(right: Right, *args: Any) -> Any:
        trials.clear()
        result = right(*args)
        for row, feed, length in trials:
            rejected = len(feed.tokens) - (len(row.history) - length)
            for mine, tried in zip(leaves(row.caches), leaves(feed.caches), strict=True):
                if rejected and spoil(mine, tried, rejected):
                    hits.hit()
                    vars(mine).update(vars(tried))
        return result

    return together(after(drafting, "_trial", note), wrap(drafting, "verify", verify))


@_fault(
    "F9.recurrent-state-not-rolled-back",
    source="issue trackers",
    needs=("cache:ArraysCache",),
    where="cache:*Arrays*",
)
def recurrent_state_not_rolled_back(hits: Hits) -> Patch:
    """Recurrent states keep rejected tokens."""
    return _not_rolled_back(lambda mine, *_: type(mine).__name__ == "ArraysCache", hits)


@_fault(
    "F9.window-not-rolled-back",
    source="issue trackers",
    needs=("cache:RotatingKVCache",),
    where="cache:*Window*",
)
def window_not_rolled_back(hits: Hits) -> Patch:
    """A window is cut after rejected tokens, and what they pushed out of it is lost."""

    def spoil(mine: Any, tried: Any, rejected: int) -> bool:
        # Where nothing was pushed out, trimming is right.
        if type(mine).__name__ != "RotatingKVCache" or tried.offset <= tried.max_size:
            return False
        tried.trim(rejected)
        return True

    return _not_rolled_back(spoil, hits)


_asked = partial(reference_fault, fault_class="speculative", source="tokenspeed #205", where=OUTPUT)


@_asked("E6.stop-at-the-end-of-a-draft", kills=("speculative/draft_model_stopped",))
def stop_at_the_end_of_a_draft(hits: Hits) -> Patch:
    """A stop sequence is looked for behind all accepted tokens of a draft, not behind each."""

    def accepted(right: Right, row: Any, draft: Sequence[int], logits: mx.array) -> Any:
        request = row.request
        row.request = msgspec.structs.replace(request, stop=())
        chosen = right(row, draft, logits)
        row.request = request
        token, logprobs, reason = chosen[-1]
        hits.hit_if(len(chosen) > 1 and request.stop)
        ended = any(tuple(row.produced[-len(stop) :]) == stop for stop in request.stop)
        return [*chosen[:-1], (token, logprobs, FinishReason.STOP if ended else reason)]

    return wrap(drafting, "_accepted", accepted)


@_asked("E6.sampler-moved-on-by-rejected-tokens", kills=("speculative/draft_model_sampled",))
def sampler_moved_on_by_rejected_tokens(hits: Hits) -> Patch:
    """A row's sampler is called for the tokens of its draft that were rejected, too."""

    def accepted(right: Right, row: Any, draft: Sequence[int], logits: mx.array) -> Any:
        chosen = right(row, draft, logits)
        for index in range(len(chosen), len(draft) + 1):
            if row.sampler is not None:
                hits.hit()
                row.sampler(logits[index][None])
        return chosen

    return wrap(drafting, "_accepted", accepted)
