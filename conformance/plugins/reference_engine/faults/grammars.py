"""Faults of rows whose grammar forbids tokens: its state is another's, late, or gone."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import mlx.core as mx

from conformance.core.faults.base import Hits
from conformance.core.faults.patching import Injection, all_of, exchange
from conformance.plugins.reference_engine.faults.tools import fault
from conformance.reference import speculative
from conformance.reference.engine import ReferenceEngine
from conformance.reference.sequence import Sequence as Row

_CLASS = "structured output"
_SOURCE = "tokenspeed #205"


class _StaleCandidates:
    """Beside prompts, masks along a draft are made for the draft of the round before."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[int, ...]] = {}
        self._now: dict[str, tuple[int, tuple[int, ...]]] = {}
        self._forks: dict[str, list[Any]] = {}

    def at_verify(self, right: Callable[..., Any], _: Hits) -> Callable[..., Any]:
        def verify(model: Any, rows: Any, drafts: Any, others: Any) -> Any:
            known = {row.name: (len(row.tokens), self._before.get(row.name, ())) for row in rows}
            self._now, self._forks = (known if others else {}), {}
            try:
                return right(model, rows, drafts, others)
            finally:
                self._now = {}
                pairs = zip(rows, drafts, strict=True)
                self._before = {row.name: draft for row, draft in pairs}

        return verify

    def at_choose(self, right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def choose(row: Any, logits: mx.array, tokens: Sequence[int]) -> Any:
            start, stale = self._now.get(row.name, (len(tokens), ()))
            count = min(len(tokens) - start, len(stale))
            wrong = [*tokens[:start], *stale[:count], *tokens[start + count :]]
            own = row.processors
            if not own or wrong == list(tokens):
                return right(row, logits, tokens)
            hits.hit()
            # The masks are made ahead by a copy; the grammar itself goes on with what came out.
            row.processors = self._forks.setdefault(row.name, copy.deepcopy(own))
            try:
                chosen = right(row, logits, wrong)
            finally:
                row.processors = own
            for processor in own:
                processor(mx.array(list(tokens)), logits[None])
            return chosen

        return choose


def _stale_candidates(hits: Hits) -> Any:
    stale = _StaleCandidates()
    return all_of(
        exchange(speculative, "verify", stale.at_verify),
        exchange(Row, "choose", stale.at_choose),
    )(hits)


class _TokensOfPrompts:
    """Beside prompts, the last token of row n is read at place n of all the pass's tokens."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[int, int]] = {}

    def at_verify(self, right: Callable[..., Any], _: Hits) -> Callable[..., Any]:
        def verify(model: Any, rows: Any, drafts: Any, others: Any) -> Any:
            flat = [t for feed in others for t in feed.tokens] + [row.todo[-1] for row in rows]
            lengths = [len(row.tokens) for row in rows]
            if others:
                self._read = {
                    row.name: (length, token)
                    for row, length, token in zip(rows, lengths, flat, strict=False)
                }
            try:
                return right(model, rows, drafts, others)
            finally:
                self._read = {}

        return verify

    def at_choose(self, right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def choose(row: Any, logits: mx.array, tokens: Sequence[int]) -> Any:
            length, token = self._read.get(row.name, (0, 0))
            if not row.processors or len(tokens) != length or tokens[-1] == token:
                return right(row, logits, tokens)
            hits.hit()
            return right(row, logits, [*tokens[:-1], token])

        return choose


def _tokens_of_prompts(hits: Hits) -> Any:
    prompts = _TokensOfPrompts()
    return all_of(
        exchange(speculative, "verify", prompts.at_verify),
        exchange(Row, "choose", prompts.at_choose),
    )(hits)


class _Dropped:
    """When rows join others, those of them that ``losing`` gives lose their processors."""

    def __init__(self, losing: Callable[[list[Any], list[Any]], list[Any]]) -> None:
        self._losing = losing
        self._known: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()

    def __call__(self, right: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def decode(engine: Any, *args: Any) -> Any:
            known = self._known.get(engine, set())
            old = [row for row in engine.decoding if row.name in known]
            new = [row for row in engine.decoding if row.name not in known]
            for row in self._losing(old, new) if old and new else []:
                if row.processors:
                    hits.hit()
                    row.processors = []
            self._known[engine] = {row.name for row in engine.decoding}
            return right(engine, *args)

        return decode


def _of_those_there(old: list[Any], new: list[Any]) -> list[Any]:
    return [] if any(row.processors for row in new) else old


def _of_newcomers(_: list[Any], new: list[Any]) -> list[Any]:
    return new


def _dropped(losing: Callable[[list[Any], list[Any]], list[Any]]) -> Injection:
    def inject(hits: Hits) -> Any:
        return exchange(ReferenceEngine, "decode", _Dropped(losing))(hits)

    return inject


FAULTS = (
    fault(
        name="E1.mask-of-stale-candidates",
        fault_class=_CLASS,
        source=_SOURCE,
        summary="Beside prompts, masks along a draft are those of the draft before.",
        needs=(),
        kills=("structured",),
        where="input:tokens|output:*",
        inject=_stale_candidates,
    ),
    fault(
        name="E2.mask-from-prompt-tokens",
        fault_class=_CLASS,
        source=_SOURCE,
        summary="Beside prompts, a grammar moves on by a prompt's token, as if all rows decoded.",
        needs=(),
        kills=("structured",),
        where="input:tokens|output:*",
        inject=_tokens_of_prompts,
    ),
    fault(
        name="F10.grammar-dropped-in-merge",
        fault_class=_CLASS,
        source="issue trackers: guided decoding in a batch",
        summary="When rows without a grammar join, the rows that decode lose theirs.",
        needs=(),
        kills=("structured",),
        where="input:tokens|output:*",
        inject=_dropped(_of_those_there),
    ),
    fault(
        name="F10.grammar-of-newcomer-dropped",
        fault_class=_CLASS,
        source="issue trackers: guided decoding in a batch",
        summary="A row that joins others loses its grammar.",
        needs=(),
        kills=("structured",),
        where="input:tokens|output:*",
        inject=_dropped(_of_newcomers),
    ),
)
