"""Structured output: rows whose grammar forbids tokens, next to unconstrained rows.

A grammar must advance by each token of its own row and by nothing else: not by rejected drafts, not
by another row's prompt, not by the previous row in its slot. With prefill in pieces, some engines
put a late request into the same pass as decoding rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from conformance.core.engine import Capability
from conformance.core.engine_options import Drafting, EngineOptions
from conformance.core.grammar import Grammar
from conformance.core.schedule import Arrival, Removal, Request, Schedule, Stage
from conformance.core.token_choice import Processor
from conformance.core.trace import Trace
from conformance.scenarios import witnesses as seen
from conformance.scenarios.build import (
    IN_PIECES,
    LASTING,
    LONG,
    MEDIUM,
    PIECE,
    SHORT,
    TWO,
    gone,
    produced,
    text_request,
    together,
)
from conformance.scenarios.scenario import Brief, Scenario, Witness

_GRAMMAR = "grammar"
_STATES = 11
# As in the scenario `speculative`: tokens verified at once, and how many of each draft are right.
_BLOCK = 4
_RIGHT = (3, 0, 2, 1)
# Output tokens: enough for each kind of draft.
_MANY = 9
_DRAFT_MODEL = "draft_model"


def _structured(brief: Brief) -> list[Schedule]:
    schedules = [*_joins(brief), _leaves(brief)]
    # mlx-vlm's server refuses grammars with a drafter (mlx_vlm/server/generation.py:1196).
    if _DRAFT_MODEL in brief.drafters and Capability.SPECULATIVE in brief.capabilities:
        schedules += _drafted(brief)
    return schedules


def _grammar(seed: int) -> dict[str, Any]:
    return {"processors": (Processor(_GRAMMAR, {"seed": seed, "states": _STATES}),)}


def _penalty() -> dict[str, Any]:
    arguments = {"repetition_penalty": 1.4, "repetition_context_size": 12}
    return {"processors": (Processor("library", arguments),)}


def _bound(brief: Brief, count: int) -> Request:
    """A request whose grammar forbids the first token that it would otherwise produce."""
    free = brief.solo(text_request(brief, "free", MEDIUM), EngineOptions())
    assert free.logprobs is not None
    vocab = free.logprobs.shape[-1]
    seed = next(
        s for s in itertools.count(1) if not Grammar(s, _STATES).allowed(vocab)[free.tokens[0]]
    )
    return text_request(brief, "bound", MEDIUM, max_tokens=count, **_grammar(seed))


def _rows(brief: Brief, count: int) -> tuple[Request, ...]:
    """Two rows with one prompt, one of them free; another grammar; one more free row."""
    return (
        _bound(brief, count),
        text_request(brief, "free", MEDIUM, max_tokens=count),
        text_request(brief, "other", SHORT, max_tokens=count, **_grammar(101)),
        text_request(brief, "short", TWO, max_tokens=count),
    )


def _late(brief: Brief) -> tuple[Request, ...]:
    return (
        text_request(brief, "late_free", LONG, max_tokens=4),
        text_request(brief, "late_bound", SHORT, variant=1, max_tokens=4, **_grammar(102)),
    )


def _arrivals(brief: Brief, count: int) -> tuple[Arrival, ...]:
    """A free row joins first, by itself: the later one with a grammar must not lose it."""
    free, bound = _late(brief)
    return (
        together(*_rows(brief, count)),
        together(free, when=produced("bound", 1)),
        together(bound, when=produced("bound", 2)),
    )


def _joins(brief: Brief) -> Iterator[Schedule]:
    arrivals = _arrivals(brief, LASTING)
    yield Schedule("joins", arrivals)
    if Capability.CHUNKED in brief.capabilities:
        yield Schedule("joins_in_pieces", arrivals, options=IN_PIECES)


def _leaves(brief: Brief) -> Schedule:
    """The first row is cancelled, a middle one ends: each other row keeps its grammar."""
    rows = (
        _bound(brief, LASTING),
        text_request(brief, "ends", TWO, variant=1, max_tokens=3),
        text_request(brief, "other", SHORT, max_tokens=LASTING, **_grammar(101)),
        text_request(brief, "free", MEDIUM, max_tokens=LASTING),
    )
    after = text_request(brief, "next", SHORT, variant=1, max_tokens=3, **_grammar(102))
    return Schedule(
        "leaves",
        (together(*rows), together(after, when=gone("bound", removed=True))),
        (Removal(("bound",), produced("bound", 2)),),
    )


def _drafted(brief: Brief) -> Iterator[Schedule]:
    """Drafts while a late prompt is prefilled in pieces: given drafts, and the drafter's own.

    One row has a penalty, which must not count rejected tokens either.
    """
    first, *late = _arrivals(brief, _MANY)
    penalty = text_request(brief, "penalty", TWO, variant=1, max_tokens=_MANY, **_penalty())
    arrivals = (together(*first.requests, penalty), *late)
    for name, right in (("drafted", _RIGHT), ("own_drafts", ())):
        options = EngineOptions(
            prefill_step_size=PIECE, drafting=Drafting(_DRAFT_MODEL, _BLOCK, right)
        )
        yield Schedule(name, arrivals, options=options)


def _is_bound(request: Request) -> bool:
    return any(processor.kind == _GRAMMAR for processor in request.processors)


def _beside(trace: Trace) -> bool:
    """Whether a row with a grammar and one without any processor decoded in one step."""
    bound = {r.request_id for r in trace.schedule.requests if _is_bound(r)}
    free = {r.request_id for r in trace.schedule.requests if not r.processors}
    steps = (set(step.in_stage(Stage.DECODE)) for step in trace.steps)
    return any(bound & decoding and free & decoding for decoding in steps)


def _forbade(trace: Trace) -> bool:
    """Whether, of two rows with the same prompt, the bound one began with another token."""
    first = {r.request_id: trace.stream(r.request_id).tokens[:1] for r in trace.schedule.requests}
    return any(
        one.prompt == other.prompt
        and first[one.request_id]
        and first[other.request_id]
        and first[one.request_id] != first[other.request_id]
        for one in trace.schedule.requests
        for other in trace.schedule.requests
        if _is_bound(one) and not other.processors
    )


def _over_a_join(trace: Trace) -> bool:
    """Whether a bound row produced something before another row joined it, and after."""
    bound = {r.request_id for r in trace.schedule.requests if _is_bound(r)}
    before: set[str] = set()
    started: set[str] = set()
    known: set[str] = set()
    for step in trace.steps:
        decoding = set(step.in_stage(Stage.DECODE))
        if known and decoding - known:
            before |= started & decoding
        known |= decoding
        emitted = {event.request_id for event in step.output.events} & bound
        if emitted & before:
            return True
        started |= emitted
    return False


STRUCTURED = Scenario(
    "structured",
    145,
    "rows whose grammar forbids tokens, beside rows without a grammar",
    frozenset({Capability.PROCESSORS, Capability.LATE_JOIN, Capability.CANCEL}),
    _structured,
    (
        Witness("a row with a grammar beside a free one", _beside),
        Witness("a grammar that forbade the likeliest token", _forbade),
        Witness("a grammar that moved on over a join", _over_a_join).shown_in("joins", "leaves"),
        seen.removed_from(Stage.DECODE, among=4).shown_in("leaves"),
        seen.follow_up().shown_in("leaves"),
    ),
)
