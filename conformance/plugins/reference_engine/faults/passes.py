"""Faults of a pass in which prompts stand beside rows that decode, verified drafts among them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from conformance.core.faults.base import Hits
from conformance.core.faults.patching import all_of, exchange
from conformance.plugins.reference_engine.faults.tools import ATTENTION, fault
from conformance.reference import forward as passes
from conformance.reference import speculative
from conformance.reference.caches.keys import RowwiseKeys
from conformance.reference.engine import ReferenceEngine
from conformance.reference.forward import Feed

_CLASS = "mixed step"


class _Mixed:
    """Knows how many rows decode in the pass at hand, if prompts stand beside them."""

    def __init__(self) -> None:
        self.decoding = 0

    def at_verify(self, right: Callable[..., Any], _: Hits) -> Callable[..., Any]:
        def verify(model: Any, rows: Any, drafts: Any, others: Any) -> Any:
            self.decoding = len(rows) if others else 0
            try:
                return right(model, rows, drafts, others)
            finally:
                self.decoding = 0

        return verify

    def at_mask(self, right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        """The plan of all rows begins with the prompts; rows that decode read its beginning."""

        def make_mask(cache: Any, *args: Any, **options: Any) -> mx.array:
            mask: mx.array = right(cache, *args, **options)  # [rows, 1, N, width]
            rows, own = cache._rows, self.decoding
            plan = (*rows[own:], *rows[:own])
            if not own or len(rows) <= own or plan[:own] == rows[:own]:
                return mask
            hits.hit()
            cache._rows = plan
            try:
                wrong = right(cache, *args, **options)
            finally:
                cache._rows = rows
            return mx.concatenate([wrong[:own], mask[own:]])

        return make_mask

    def at_forward(self, right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        """Logits are gathered as if each row had one token, and prompts stood first."""

        def forward(model: Any, feeds: Sequence[Feed]) -> list[mx.array]:
            logits: list[mx.array] = right(model, feeds)
            own, self.decoding = self.decoding, 0  # the pass that feeds tokens again is right
            if not own:
                return logits
            prompts = logits[own:]
            flat = mx.concatenate([*prompts, *logits[:own]])  # [all tokens, vocab]
            if any(len(mine) > 1 for mine in logits):
                hits.hit()
            starts = range(len(prompts), len(prompts) + own)
            wrong = (
                flat[start : start + len(mine)]
                for start, mine in zip(starts, logits[:own], strict=True)
            )
            return [*wrong, *prompts]

        return forward


def _plan_of_all_rows(hits: Hits) -> Any:
    mixed = _Mixed()
    return all_of(
        exchange(speculative, "verify", mixed.at_verify),
        exchange(RowwiseKeys, "make_mask", mixed.at_mask),
    )(hits)


def _by_row_number(hits: Hits) -> Any:
    mixed = _Mixed()
    return all_of(
        exchange(speculative, "verify", mixed.at_verify),
        exchange(speculative, "forward", mixed.at_forward),
    )(hits)


def _at_last_column(right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def together(model: Any, feeds: Sequence[Feed]) -> list[mx.array]:
        seen: list[mx.array] = []

        def watched(*args: Any, **options: Any) -> mx.array:
            seen.append(model(*args, **options))
            return seen[-1]

        right(watched, feeds)
        (logits,) = seen  # [rows, columns, vocab]
        starts = [logits.shape[1] - len(feed.tokens) for feed in feeds]
        if any(starts):
            hits.hit()
        return [logits[row, start:] for row, start in enumerate(starts)]

    return together


class _StaleLengths:
    """From the third token of a draft on, the draft's caches are as they were at the second."""

    def __init__(self) -> None:
        self.mixed = False
        self.steps: int | None = None
        self.old: dict[int, list[Any]] = {}

    def at_decode(self, right: Callable[..., Any], _: Hits) -> Callable[..., Any]:
        def decode(engine: Any, feeds: Sequence[Feed] = ()) -> Any:
            self.mixed = bool(feeds)
            return right(engine, feeds)

        return decode

    def at_draft(self, right: Callable[..., Any], _: Hits) -> Callable[..., Any]:
        def draft(drafts: Any, rows: Any, counts: Any) -> Any:
            self.steps = 0 if self.mixed else None
            try:
                return right(drafts, rows, counts)
            finally:
                self.steps = None

        return draft

    def at_forward(self, right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def forward(model: Any, feeds: Sequence[Feed]) -> Any:
            if self.steps is None:
                return right(model, feeds)
            self.steps += 1
            if self.steps == 2:
                self.old = {id(feed.caches): copy.deepcopy(feed.caches) for feed in feeds}
            if self.steps <= 2:
                return right(model, feeds)
            hits.hit()
            old = [Feed(copy.deepcopy(self.old[id(f.caches)]), f.tokens) for f in feeds]
            return right(model, old)

        return forward


def _stale_lengths(hits: Hits) -> Any:
    stale = _StaleLengths()
    return all_of(
        exchange(ReferenceEngine, "decode", stale.at_decode),
        exchange(speculative.Drafts, "_draft", stale.at_draft),
        exchange(speculative, "forward", stale.at_forward),
    )(hits)


FAULTS = (
    fault(
        name="E3.plan-of-all-rows",
        fault_class=_CLASS,
        source="tokenspeed #205",
        summary="Rows that decode beside prompts read the attention plan where prompts stand.",
        needs=(ATTENTION,),
        kills=("staggered",),
        where="module:*ttention",
        inject=_plan_of_all_rows,
    ),
    fault(
        name="E4.lengths-not-refreshed",
        fault_class="speculative",
        source="tokenspeed #205",
        summary="Beside prompts the steps of a draft go on from the lengths of its first step.",
        needs=(),
        kills=("structured",),
        where="output:*",
        inject=_stale_lengths,
    ),
    fault(
        name="E5.logits-at-last-column",
        fault_class=_CLASS,
        source="tokenspeed #205",
        summary="Logits are gathered at the pass's last columns, which are padding for short rows.",
        needs=(),
        kills=("staggered",),
        where="input:tokens|output:*",
        inject=exchange(passes, "_together", _at_last_column),
    ),
    fault(
        name="E5.logits-by-row-number",
        fault_class=_CLASS,
        source="tokenspeed #205",
        summary="Logits are gathered as if all rows had one token, while some are prompts.",
        needs=(),
        kills=("staggered",),
        where="input:tokens|output:*",
        inject=_by_row_number,
    ),
)
