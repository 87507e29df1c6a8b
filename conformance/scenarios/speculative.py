"""Speculative decoding: whatever is drafted, the output must equal the single stream.

Engines return no logprobs while drafting, so tokens are compared. The schedule sets how many tokens
of a draft are right: each row accepts a different number in each round, from none to all. While a
batch uses drafts, the engine admits no request; new ones wait for its end.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from conformance.core.engine import Capability
from conformance.core.engine_options import Drafting, EngineOptions
from conformance.core.family import Family
from conformance.core.rounds import rounds
from conformance.core.schedule import Removal, Request, Schedule, Stage, Trigger
from conformance.core.token_choice import BY_POSITION, Sampler
from conformance.core.trace import FinishReason, Trace
from conformance.scenarios import stop_tokens
from conformance.scenarios import witnesses as seen
from conformance.scenarios.build import (
    LASTING,
    LONG,
    MEDIUM,
    PIECE,
    SHORT,
    TWO,
    at_once,
    gone,
    media_request,
    produced,
    requests_of,
    text_request,
    together,
)
from conformance.scenarios.engine_sampling import SECOND
from conformance.scenarios.scenario import Brief, Scenario, Witness


def accepted_all() -> Witness:
    """All tokens of a draft were accepted, and one more token was produced."""
    return Witness(
        "a draft accepted whole", lambda t: any(r.given == r.drafted + 1 for r in rounds(t))
    )


def accepted_some() -> Witness:
    """Some of a draft's first tokens were accepted, but not all."""
    return Witness(
        "a draft accepted in part",
        lambda t: any(1 < r.given <= r.drafted and not r.last for r in rounds(t)),
    )


def rejected() -> Witness:
    """A draft's first token was rejected."""
    return Witness(
        "a draft rejected", lambda t: any(r.given == 1 and not r.last for r in rounds(t))
    )


def limited_within() -> Witness:
    """A request reached its limit in a round in which it had a draft.

    Some engines draft no further than the limit, so that the whole draft may be accepted.
    """
    return Witness(
        "a limit within a draft",
        lambda t: any(
            r.reason is FinishReason.LENGTH and r.given > 0 < r.drafted for r in rounds(t)
        ),
    )


def stopped_within() -> Witness:
    """A request ended with a stop sequence before the end of its draft."""
    return Witness(
        "a stop within a draft",
        lambda t: any(
            r.reason is FinishReason.STOP and 0 < r.given <= r.drafted for r in rounds(t)
        ),
        needs=frozenset({Capability.STOP}),
    )


def sampled_in_part() -> Witness:
    """Some first tokens of a draft for a request with a sampler were accepted, but not all."""
    return Witness(
        "a sampled draft accepted in part",
        lambda t: any(
            1 < r.given <= r.drafted
            and not r.last
            and t.schedule.request(r.request_id).sampler is not None
            for r in rounds(t)
        ),
    )


def verified_together(count: int) -> Witness:
    """Tokens were drafted for at least ``count`` requests in one step."""
    return Witness(
        f"drafts for {count} rows at once",
        lambda trace: any(len(step.output.drafted) >= count for step in trace.steps),
    )


def waits_while_drafting() -> Witness:
    """A request that arrived while others used drafts was completed."""

    def seen(trace: Trace) -> bool:
        waiting = {
            name
            for step in trace.steps
            if step.output.drafted
            for name in step.in_stage(Stage.QUEUED)
        }
        return any(trace.stream(name).finish_reason for name in waiting)

    return Witness("a request that waits while others draft", seen)


# Tokens that are verified at once, and how many of each draft are right, row by row.
BLOCK = 4
RIGHT = (3, 0, 2, 1)
# Kinds of drafters whose rounds give samplers the positions of what they draw.
_POSITIONED = ("dflash", "mtp")
_BY_POSITION = Sampler(BY_POSITION, {"ranks": 3})
# Output tokens: enough for a round of each kind.
MANY = 10


def _speculative(brief: Brief) -> list[Schedule]:
    makers = (_alone, _ragged, _waiting, _cancelled, _image, _stopped, _sampled)
    return [s for kind in brief.drafters for make in makers for s in make(brief, kind)]


def _drafting(kind: str, *right: int, slots: int = 8, step: int = 2048) -> EngineOptions:
    """``right`` as in ``Drafting``; at most ``slots`` rows, prefilled in pieces of ``step``."""
    return EngineOptions(
        prefill_step_size=step,
        prefill_batch_size=slots,
        completion_batch_size=slots,
        drafting=Drafting(kind, BLOCK, right),
    )


def _rows(brief: Brief, *outputs: int) -> list[Request]:
    """Rows of unequal prompt length, named after it, with these numbers of output tokens."""
    lengths = (LONG, SHORT, MEDIUM, TWO)
    return [
        text_request(brief, f"r{n}", n, max_tokens=out)
        for n, out in zip(lengths, outputs, strict=False)
    ]


def _alone(brief: Brief, kind: str) -> Iterator[Schedule]:
    one = text_request(brief, "only", LONG, max_tokens=MANY)
    yield at_once(f"{kind}_of_one", one, options=_drafting(kind, *RIGHT))


def _ragged(brief: Brief, kind: str) -> Iterator[Schedule]:
    """Rows that end within a draft, at its end, and with their first token."""
    rows = together(*_rows(brief, MANY, 7, 1, 3))
    yield Schedule(f"{kind}_ragged", (rows,), options=_drafting(kind, *RIGHT))
    whole = together(*_rows(brief, MANY, MANY))
    yield Schedule(f"{kind}_all_right", (whole,), options=_drafting(kind, BLOCK))
    own = EngineOptions(drafting=Drafting(kind))
    few = together(*_rows(brief, 4, 3, 4, 4))
    yield Schedule(f"{kind}_own_drafts", (few,), options=own)


def _waiting(brief: Brief, kind: str) -> Iterator[Schedule]:
    """More requests than slots, and one that arrives while others draft."""
    lengths = {"a": MEDIUM, "b": LONG, "c": SHORT, "d": TWO}
    rows = requests_of(brief, lengths, LASTING)
    late = text_request(brief, "late", MEDIUM, variant=1)
    options = _drafting(kind, *RIGHT, slots=2)
    arrivals = (together(*rows), together(late, when=produced("c", 2)))
    yield Schedule(f"{kind}_slot_reuse", arrivals, options=options)


def _cancelled(brief: Brief, kind: str) -> Iterator[Schedule]:
    """The first of four rows is removed, then a middle one; also with prefill in pieces."""
    after = text_request(brief, "next", SHORT, variant=1)
    gone_first = Removal((f"r{LONG}",), produced(f"r{SHORT}", 2))
    yield Schedule(
        f"{kind}_cancelled",
        (
            together(*_rows(brief, MANY, MANY, MANY, MANY)),
            together(after, when=gone(f"r{MEDIUM}", removed=True)),
        ),
        (gone_first, Removal((f"r{MEDIUM}",), produced(f"r{SHORT}", 5))),
        options=_drafting(kind, *RIGHT),
    )
    yield at_once(
        f"{kind}_cancelled_early",
        *_rows(brief, 6, 6, 6, 6),
        removals=(Removal((f"r{MEDIUM}",), Trigger(count=2)),),
        options=_drafting(kind, *RIGHT, step=PIECE),
    )


def _image(brief: Brief, kind: str) -> Iterator[Schedule]:
    if "image" in brief.modalities:
        rows = together(
            media_request(brief, "one", "image", max_tokens=6),
            text_request(brief, "text", LONG, max_tokens=6),
            media_request(brief, "other", "image", size=1, content=1, max_tokens=6),
        )
        yield Schedule(f"{kind}_image_beside_text", (rows,), options=_drafting(kind, *RIGHT))


def _stopped(brief: Brief, kind: str) -> Iterator[Schedule]:
    """Stop sequences that end within a draft whose further tokens are right, and across two."""
    options = _drafting(kind, BLOCK)
    if brief.capabilities >= stop_tokens.NEEDS:
        rows = _rows(brief, MANY, MANY, 3, MANY)
        yield at_once(f"{kind}_stop_tokens", *stop_tokens.stopping(brief, rows), options=options)
    if Capability.STOP not in brief.capabilities:
        return
    rows = _rows(brief, MANY, MANY, MANY)
    one, other = (brief.solo(row, options).tokens for row in rows[:2])
    stops = ((one[1:3],), (other[BLOCK : BLOCK + 2],), ())
    stopped = [
        msgspec.structs.replace(row, stop=stop) for row, stop in zip(rows, stops, strict=True)
    ]
    yield at_once(f"{kind}_stopped", *stopped, options=options)


def _sampled(brief: Brief, kind: str) -> Iterator[Schedule]:
    """Rows with their own sampler next to a greedy row; rejected tokens must not advance it."""
    if Capability.SAMPLERS not in brief.capabilities:
        yield from _engines_sampler(brief, kind)
        return
    samplers = [Sampler("seeded", {"temperature": 0.8, "seed": seed}) for seed in (1, 2)]
    rows = _rows(brief, MANY, MANY, MANY)
    sampled = [
        msgspec.structs.replace(row, sampler=sampler)
        for row, sampler in zip(rows, (*samplers, None), strict=True)
    ]
    yield at_once(f"{kind}_sampled", *sampled, options=_drafting(kind, *RIGHT))


def _engines_sampler(brief: Brief, kind: str) -> Iterator[Schedule]:
    """The engine's own sampler, which verifies drafts; by positions where rounds know these."""
    if Capability.DEFAULTS in brief.capabilities:
        sampler = _BY_POSITION if kind in _POSITIONED else SECOND
        options = msgspec.structs.replace(_drafting(kind, *RIGHT), sampler=sampler)
        rows = [msgspec.structs.replace(r, sampler=sampler) for r in _rows(brief, MANY, MANY, MANY)]
        yield at_once(f"{kind}_sampled", *rows, options=options)


def _has_drafter(family: Family) -> str:
    return "" if family.facts.drafters else "it has no drafter"


SPECULATIVE = Scenario(
    "speculative",
    150,
    "tokens that a drafter guesses and the model verifies, several at once",
    frozenset(
        {
            Capability.SPECULATIVE,
            Capability.CHUNKED,
            Capability.LATE_JOIN,
            Capability.SLOTS,
            Capability.CANCEL,
            Capability.STAGES,
        }
    ),
    _speculative,
    (
        accepted_all().shown_in("*_of_one", "*_ragged", "*_all_right"),
        accepted_some().shown_in("*_of_one", "*_ragged"),
        rejected().shown_in("*_of_one", "*_ragged"),
        verified_together(4).shown_in("*_cancelled"),
        waits_while_drafting().shown_in("*_slot_reuse", "*_cancelled"),
        limited_within().shown_in("*_ragged"),
        stopped_within().shown_in("*_stopped"),
        sampled_in_part().shown_in("*_sampled"),
        seen.removed_from(Stage.DECODE, among=4).shown_in("*_cancelled"),
        seen.follow_up().shown_in("*_cancelled"),
    ),
    applies=_has_drafter,
)
