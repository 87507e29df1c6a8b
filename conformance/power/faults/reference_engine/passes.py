"""Faults of a pass in which prompts stand beside rows that decode, verified drafts among them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, before, replace, together, wrap
from conformance.power.faults.reference_engine.tools import ATTENTION, reference_fault
from conformance.power.faults.shared_faults import ATTENTION_MODULE, OUTPUT
from conformance.reference import drafting
from conformance.reference import forward as passes
from conformance.reference.caches.keys import RowwiseKeys
from conformance.reference.engine import ReferenceEngine
from conformance.reference.forward import Feed

_fault = partial(
    reference_fault,
    fault_class="mixed step",
    source="tokenspeed #205",
    kills=("staggered",),
    where=OUTPUT,
)


class _Mixed:
    """How many rows decode in the pass at hand, if prompts stand beside them; else 0."""

    def __init__(self) -> None:
        self.decoding = 0

    def noted(self) -> Patch:
        """Inside, it is up to date."""

        def verify(right: Right, model: Any, rows: Any, drafts: Any, others: Any) -> Any:
            with replace(self, "decoding", len(rows) if others else 0):
                return right(model, rows, drafts, others)

        return wrap(drafting, "verify", verify)


@_fault("E3.plan-of-all-rows", needs=(ATTENTION,), where=ATTENTION_MODULE)
def plan_of_all_rows(hits: Hits) -> Patch:
    """Rows that decode beside prompts read the attention plan where prompts stand.

    The plan of all rows begins with the prompts; rows that decode read its beginning.
    """
    mixed = _Mixed()

    def make_mask(right: Right, cache: Any, *args: Any, **options: Any) -> mx.array:
        mask: mx.array = right(cache, *args, **options)  # [rows, 1, N, width]
        rows, own = cache._rows, mixed.decoding
        plan = (*rows[own:], *rows[:own])
        if not own or len(rows) <= own or plan[:own] == rows[:own]:
            return mask
        hits.hit()
        with replace(cache, "_rows", plan):
            wrong = right(cache, *args, **options)
        return mx.concatenate([wrong[:own], mask[own:]])

    return together(mixed.noted(), wrap(RowwiseKeys, "make_mask", make_mask))


@_fault(
    "E4.lengths-not-refreshed",
    fault_class="speculative",
    kills=("structured",),
    where="output:*",
)
def lengths_not_refreshed(hits: Hits) -> Patch:
    """Beside prompts the steps of a draft go on from the lengths of its first step.

    From the third token of a draft on, the draft's caches are as they were at the second.
    """
    mixed = False
    steps: int | None = None
    old: dict[int, list[Any]] = {}

    def decode(_: Any, feeds: Sequence[Feed] = ()) -> None:
        nonlocal mixed
        mixed = bool(feeds)

    def draft(right: Right, *args: Any) -> Any:
        nonlocal steps
        steps = 0 if mixed else None
        try:
            return right(*args)
        finally:
            steps = None

    def forward(right: Right, model: Any, feeds: Sequence[Feed]) -> Any:
        nonlocal steps, old
        if steps is None:
            return right(model, feeds)
        steps += 1
        if steps == 2:
            old = {id(feed.caches): copy.deepcopy(feed.caches) for feed in feeds}
        if steps <= 2:
            return right(model, feeds)
        hits.hit()
        return right(model, [Feed(copy.deepcopy(old[id(f.caches)]), f.tokens) for f in feeds])

    return together(
        before(ReferenceEngine, "decode", decode),
        wrap(drafting.Drafts, "_draft", draft),
        wrap(drafting, "forward", forward),
    )


@_fault("E5.logits-at-last-column")
def logits_at_last_column(hits: Hits) -> Patch:
    """Logits are gathered at the pass's last columns, which are padding for short rows."""

    def pass_together(right: Right, model: Any, feeds: Sequence[Feed]) -> list[mx.array]:
        seen: list[mx.array] = []

        def watched(*args: Any, **options: Any) -> mx.array:
            seen.append(model(*args, **options))
            return seen[-1]

        right(watched, feeds)
        (logits,) = seen  # [rows, columns, vocab]
        starts = [logits.shape[1] - len(feed.tokens) for feed in feeds]
        hits.hit_if(any(starts))
        return [logits[row, start:] for row, start in enumerate(starts)]

    return wrap(passes, "_together", pass_together)


@_fault("E5.logits-by-row-number")
def logits_by_row_number(hits: Hits) -> Patch:
    """Logits are gathered as if all rows had one token, while some are prompts.

    And as if the prompts stood first.
    """
    mixed = _Mixed()

    def forward(right: Right, model: Any, feeds: Sequence[Feed]) -> list[mx.array]:
        logits: list[mx.array] = right(model, feeds)
        own, mixed.decoding = mixed.decoding, 0  # the pass that feeds tokens again is right
        if not own:
            return logits
        prompts = logits[own:]
        flat = mx.concatenate([*prompts, *logits[:own]])  # [all tokens, vocab]
        hits.hit_if(any(len(mine) > 1 for mine in logits))
        starts = range(len(prompts), len(prompts) + own)
        wrong = (
            flat[start : start + len(mine)]
            for start, mine in zip(starts, logits[:own], strict=True)
        )
        return [*wrong, *prompts]

    return together(mixed.noted(), wrap(drafting, "forward", forward))
