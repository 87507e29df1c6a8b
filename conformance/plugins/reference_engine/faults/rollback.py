"""Faults of drafts: what stays of rejected tokens in caches, penalties and grammars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import mlx.core as mx

from conformance.backend.entries import leaves
from conformance.backend.sampling import GrammarProcessor
from conformance.core.faults.base import Hits
from conformance.core.faults.patching import Injection, all_of, exchange
from conformance.plugins.reference_engine.faults.tools import fault
from conformance.reference import speculative
from conformance.reference.forward import Feed
from conformance.reference.sequence import Sequence as Row

_CLASS = "speculative"
_STRUCTURED = "structured output"
_RECURRENT, _WINDOW = "ArraysCache", "RotatingKVCache"


def _rejected_stay(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def settle(row: Any, feed: Feed, count: int) -> list[Feed]:
        again: list[Feed] = right(row, Feed(feed.caches, feed.tokens[:count]), count)
        if count < len(feed.tokens):
            hits.hit()
        return again

    return settle


def _last_accepted_missing(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def settle(row: Any, feed: Feed, count: int) -> list[Feed]:
        before = row.caches
        again: list[Feed] = right(row, feed, count)
        if not 1 < count == len(feed.tokens):
            return again
        hits.hit()
        row.caches = before
        return [Feed(before, feed.tokens[:-1])]

    return settle


def _draft_lacks_accepted(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    """The draft's own caches miss a token after a draft that was accepted whole."""

    def draft(drafts: Any, rows: Any, counts: Any) -> Any:
        block = drafts._drafting.block_size or 0
        for row in rows:
            if row.draft_fed and len(row.tokens) - row.draft_fed == block:
                hits.hit()
                row.draft_fed += 1
        return right(drafts, rows, counts)

    return draft


def _rejected(draft: Sequence[int], chosen: Sequence[Any]) -> tuple[int, ...]:
    """What of a draft was not accepted; nothing where its request ended."""
    ended = chosen[-1][2] is not None
    return () if ended else tuple(draft[len(chosen) - 1 :])


def _rejected_in_grammar(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def accepted(row: Any, draft: Sequence[int], logits: mx.array) -> Any:
        known = row.tokens
        chosen = right(row, draft, logits)
        rejected = _rejected(draft, chosen)
        for processor in row.processors:
            if rejected and isinstance(processor, GrammarProcessor):
                hits.hit()
                said = draft[: len(chosen) - 1]
                processor.grammar.advance([*known, *said, *rejected])
        return chosen

    return accepted


class _RejectedInHistory:
    """Penalties count tokens that were drafted and rejected."""

    def __init__(self) -> None:
        self._rejected: WeakKeyDictionary[Any, list[int]] = WeakKeyDictionary()

    def at_accepted(self, right: Callable[..., Any], _: Hits) -> Callable[..., Any]:
        def accepted(row: Any, draft: Sequence[int], logits: mx.array) -> Any:
            chosen = right(row, draft, logits)
            self._rejected.setdefault(row, []).extend(_rejected(draft, chosen))
            return chosen

        return accepted

    def at_choose(self, right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def choose(row: Any, logits: mx.array, tokens: Sequence[int]) -> Any:
            rejected = self._rejected.get(row, [])
            counting = [p for p in row.processors if not isinstance(p, GrammarProcessor)]
            if not rejected or not counting:
                return right(row, logits, tokens)
            hits.hit()
            return right(row, logits, [*tokens, *rejected])

        return choose


def _rejected_in_penalties(hits: Hits) -> Any:
    history = _RejectedInHistory()
    return all_of(
        exchange(speculative, "_accepted", history.at_accepted),
        exchange(Row, "choose", history.at_choose),
    )(hits)


class _NotRolledBack:
    """Caches of one kind are after a round what they were when all of the draft was in them."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._trials: list[tuple[Any, Feed, int]] = []

    def at_trial(self, right: Callable[..., Any], _: Hits) -> Callable[..., Any]:
        def trial(row: Any, draft: Any) -> Feed:
            feed: Feed = right(row, draft)
            self._trials.append((row, feed, len(row.history)))
            return feed

        return trial

    def at_verify(self, right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def verify(*args: Any) -> Any:
            self._trials = []
            result = right(*args)
            for row, feed, before in self._trials:
                rejected = len(feed.tokens) - (len(row.history) - before)
                if rejected:
                    self._spoil(row, feed, rejected, hits)
            return result

        return verify

    def _spoil(self, row: Any, feed: Feed, rejected: int, hits: Hits) -> None:
        for mine, tried in zip(leaves(row.caches), leaves(feed.caches), strict=True):
            if type(mine).__name__ != self._kind:
                continue
            if self._kind == _WINDOW:
                if tried.offset <= tried.max_size:  # nothing was pushed out: trimming is right
                    continue
                tried.trim(rejected)
            hits.hit()
            vars(mine).update(vars(tried))


def _not_rolled_back(kind: str) -> Injection:
    def inject(hits: Hits) -> Any:
        left = _NotRolledBack(kind)
        return all_of(
            exchange(speculative, "_trial", left.at_trial),
            exchange(speculative, "verify", left.at_verify),
        )(hits)

    return inject


FAULTS = (
    fault(
        name="E6.rejected-drafts-stay",
        fault_class=_CLASS,
        source="tokenspeed #205",
        summary="Rejected tokens stay in a row's caches.",
        needs=(),
        kills=("structured", "speculative"),
        where="cache:*",
        inject=exchange(speculative, "_settle", _rejected_stay),
    ),
    fault(
        name="E6.rejected-drafts-in-grammar",
        fault_class=_STRUCTURED,
        source="tokenspeed #205",
        summary="A grammar has moved on by tokens that were then rejected.",
        needs=(),
        kills=("structured",),
        where="input:tokens|output:*",
        inject=exchange(speculative, "_accepted", _rejected_in_grammar),
    ),
    fault(
        name="E6.rejected-drafts-in-penalties",
        fault_class="samplers",
        source="tokenspeed #205",
        summary="Penalties count tokens that were rejected.",
        needs=(),
        kills=("structured",),
        where="input:tokens|output:*",
        inject=_rejected_in_penalties,
    ),
    fault(
        name="E7.last-accepted-missing",
        fault_class=_CLASS,
        source="tokenspeed #205",
        summary="After a draft that was accepted whole a row's caches lack its last token.",
        needs=(),
        kills=("structured", "speculative"),
        where="cache:*",
        inject=exchange(speculative, "_settle", _last_accepted_missing),
    ),
    fault(
        name="E7.draft-lacks-accepted",
        fault_class=_CLASS,
        source="tokenspeed #205",
        summary="After a draft that was accepted whole the draft model's caches lack a token.",
        needs=(),
        kills=("structured", "speculative"),
        where="output:*",
        inject=exchange(speculative.Drafts, "_draft", _draft_lacks_accepted),
    ),
    fault(
        name="F9.recurrent-state-not-rolled-back",
        fault_class=_CLASS,
        source="issue trackers",
        summary="Recurrent states keep rejected tokens.",
        needs=(f"cache:{_RECURRENT}",),
        kills=("structured", "speculative"),
        where="cache:*Arrays*",
        inject=_not_rolled_back(_RECURRENT),
    ),
    fault(
        name="F9.window-not-rolled-back",
        fault_class=_CLASS,
        source="issue trackers",
        summary="A window is cut after rejected tokens, and what they pushed out of it is lost.",
        needs=(f"cache:{_WINDOW}",),
        kills=("structured", "speculative"),
        where="cache:*Window*",
        inject=_not_rolled_back(_WINDOW),
    ),
)
