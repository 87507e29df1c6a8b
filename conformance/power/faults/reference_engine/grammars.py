"""Faults of rows whose grammar forbids tokens: its state is another's, late, or gone."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import mlx.core as mx

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, before, together, wrap
from conformance.power.faults.reference_engine.tools import reference_fault
from conformance.power.faults.shared_faults import OUTPUT
from conformance.reference import drafting
from conformance.reference.engine import ReferenceEngine
from conformance.reference.sequence import Sequence as Row

_fault = partial(
    reference_fault,
    fault_class="structured output",
    source="tokenspeed #205",
    kills=("structured",),
    where=OUTPUT,
)
_dropped = partial(_fault, source="issue trackers: guided decoding in a batch")


@_fault("E1.mask-of-stale-candidates")
def mask_of_stale_candidates(hits: Hits) -> Patch:
    """Beside prompts, masks along a draft are those of the draft before."""
    last: dict[str, tuple[int, ...]] = {}
    now: dict[str, tuple[int, tuple[int, ...]]] = {}
    forks: dict[str, list[Any]] = {}

    def verify(right: Right, model: Any, rows: Any, drafts: Any, others: Any) -> Any:
        forks.clear()
        if others:
            now.update({row.name: (len(row.tokens), last.get(row.name, ())) for row in rows})
        try:
            return right(model, rows, drafts, others)
        finally:
            now.clear()
            last.clear()
            last.update({row.name: draft for row, draft in zip(rows, drafts, strict=True)})

    def choose(right: Right, row: Any, logits: mx.array, tokens: Sequence[int]) -> Any:
        start, stale = now.get(row.name, (len(tokens), ()))
        count = min(len(tokens) - start, len(stale))
        wrong = [*tokens[:start], *stale[:count], *tokens[start + count :]]
        own = row.processors
        if not own or wrong == list(tokens):
            return right(row, logits, tokens)
        hits.hit()
        # The masks are made ahead by a copy; the grammar itself goes on with what came out.
        row.processors = forks.setdefault(row.name, copy.deepcopy(own))
        try:
            chosen = right(row, logits, wrong)
        finally:
            row.processors = own
        for processor in own:
            processor(mx.array(list(tokens)), logits[None])
        return chosen

    return together(wrap(drafting, "verify", verify), wrap(Row, "choose", choose))


@_fault("E2.mask-from-prompt-tokens")
def mask_from_prompt_tokens(hits: Hits) -> Patch:
    """Beside prompts, a grammar moves on by a prompt's token, as if all rows decoded.

    The last token of row n is read at place n of all the pass's tokens.
    """
    read: dict[str, tuple[int, int]] = {}

    def verify(right: Right, model: Any, rows: Any, drafts: Any, others: Any) -> Any:
        flat = [t for feed in others for t in feed.tokens] + [row.todo[-1] for row in rows]
        if others:
            pairs = zip(rows, flat, strict=False)
            read.update({row.name: (len(row.tokens), token) for row, token in pairs})
        try:
            return right(model, rows, drafts, others)
        finally:
            read.clear()

    def choose(right: Right, row: Any, logits: mx.array, tokens: Sequence[int]) -> Any:
        length, token = read.get(row.name, (0, 0))
        if not row.processors or len(tokens) != length or tokens[-1] == token:
            return right(row, logits, tokens)
        hits.hit()
        return right(row, logits, [*tokens[:-1], token])

    return together(wrap(drafting, "verify", verify), wrap(Row, "choose", choose))


def _dropped_by_a_join(losing: Callable[[list[Any], list[Any]], list[Any]], hits: Hits) -> Patch:
    """When rows join others, those that ``losing(old, new)`` gives lose their processors."""
    decoding: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()

    def drop(engine: Any, *_: Any) -> None:
        known = decoding.get(engine, set())
        old = [row for row in engine.decoding if row.name in known]
        new = [row for row in engine.decoding if row.name not in known]
        for row in losing(old, new) if old and new else []:
            if row.processors:
                hits.hit()
                row.processors = []
        decoding[engine] = {row.name for row in engine.decoding}

    return before(ReferenceEngine, "decode", drop)


@_dropped("F10.grammar-dropped-in-merge")
def grammar_dropped_in_merge(hits: Hits) -> Patch:
    """When rows without a grammar join, the rows that decode lose theirs."""

    def of_those_there(old: list[Any], new: list[Any]) -> list[Any]:
        return [] if any(row.processors for row in new) else old

    return _dropped_by_a_join(of_those_there, hits)


@_dropped("F10.grammar-of-newcomer-dropped")
def grammar_of_newcomer_dropped(hits: Hits) -> Patch:
    """A row that joins others loses its grammar."""
    return _dropped_by_a_join(lambda _, new: new, hits)
