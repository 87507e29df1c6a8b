"""Rounds of speculative decoding: a draft for each row, and how many tokens came of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from conformance.core.trace import Claim, FinishReason, Stream, Trace

# Counts are added up as floats.
_ROUNDED = 1e-6
WASTED = "the engine accepts another number of a draft's tokens than were right"


@dataclass(frozen=True)
class Hints:
    """What a draft must contain to be accepted, and to be rejected, at each output token.

    Attributes:
        right: the oracle's tokens.
        wrong: the tokens that the oracle finds most likely next to the right ones. A lax comparison
            accepts these first.
    """

    right: tuple[int, ...]
    wrong: tuple[int, ...]


def hints_of(stream: Stream, text: tuple[int, int]) -> Hints:
    """The hints by the oracle's stream.

    Args:
        text: half-open range of token ids, from which wrong tokens are taken.
    """
    low, high = text
    if stream.logprobs is None:
        wrong = [low + (token - low + 1) % (high - low) for token in stream.tokens]
        return Hints(stream.tokens, tuple(wrong))
    table = stream.logprobs[: len(stream.tokens)].copy()
    table[range(len(stream.tokens)), list(stream.tokens)] = -np.inf
    return Hints(stream.tokens, tuple(int(t) + low for t in table[:, low:high].argmax(axis=1)))


@dataclass(frozen=True)
class Round:
    """A draft for one request.

    Attributes:
        start: how many tokens were produced before it.
        drafted: how many tokens were verified.
        given: how many tokens were produced before the next draft.
        last: no draft came after it.
        reason: why the request ended in it, if it did.
        proposed: the drafter's own tokens, whatever was verified instead; empty if unknown.
    """

    request_id: str
    start: int
    drafted: int
    given: int = 0
    last: bool = False
    reason: FinishReason | None = None
    proposed: tuple[int, ...] = ()


@dataclass(frozen=True)
class Given:
    """What a row got of a draft of which it is known how many first tokens were right.

    Attributes:
        tokens: how many tokens were produced: the accepted ones, and the one after them.
        right: how many of the draft's tokens were right before the first wrong one.
    """

    tokens: int
    right: int

    def may_be(self, tokens: int) -> bool:
        """Whether the row, which ended in the round, may have had as many tokens accepted."""
        return self.tokens <= tokens <= self.right + 1


def all_accepted(going: Sequence[Given], ended: Sequence[Given]) -> Claim:
    """An engine's claim that all right tokens of a round were accepted.

    Some drafters need rows that accept equally many: then each gets as many as the row with the
    fewest. Of a row that ended in the round it is unknown how many were accepted.

    Args:
        going: the rows that are drafted for again.
        ended: those that are not.
    """
    said, right = [g.tokens for g in going], [g.right + 1 for g in going]
    fewest = min(right)
    equal = len(set(said)) == 1 and said[0] <= fewest
    as_fewest = equal and (said[0] == fewest or any(row.may_be(said[0]) for row in ended))
    what = "tokens that the rows of a batch got of their drafts"
    return Claim(what, _listed(said), _listed(right), said == right or as_fewest, WASTED)


def counted_as_accepted(said: float, going: Sequence[Given], ended: Sequence[Given]) -> Claim:
    """An engine's claim of how many tokens of a draft were accepted, in the mean of a round's rows.

    Args:
        said: its mean.
        going: the rows that are drafted for again.
        ended: those that are not; of the right tokens of these any number may have been accepted.
    """
    produced = [max(row.tokens - 1, 0) for row in (*going, *ended)]
    possible = [row.tokens - 1 for row in going] + [max(r.right, r.tokens - 1) for r in ended]
    least, most = (sum(counts) / len(produced) for counts in (produced, possible))
    found = f"{least:g}" if least == most else f"{least:g} to {most:g}"
    what = "accepted tokens of a draft, in the mean of the rows"
    return Claim(what, f"{said:g}", found, least - _ROUNDED <= said <= most + _ROUNDED)


def counted_once(said: float, rows: int) -> Claim:
    """An engine's claim of how many rounds it counted in one: one, or one for each of the rows."""
    allowed = "1" if rows == 1 else f"1 or {rows}"
    return Claim("rounds of drafts counted in one", f"{said:g}", allowed, said in (1, rows))


def _listed(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts))


def rounds(trace: Trace) -> Iterator[Round]:
    """All rounds of all requests."""
    for request in trace.schedule.requests:
        yield from rounds_of(trace, request.request_id)


def rounds_of(trace: Trace, name: str) -> Iterator[Round]:
    """The rounds of one request."""
    current, produced = None, 0
    for step in trace.steps:
        if name in step.output.drafted:
            if current is not None:
                yield current
            proposed = step.output.proposed.get(name, ())
            current = Round(name, produced, step.output.drafted[name], proposed=proposed)
        mine = [event for event in step.output.events if event.request_id == name]
        produced += len(mine)
        if current is not None:
            ends = (event.finish_reason for event in mine if event.finish_reason)
            reason = next(ends, current.reason)
            current = replace(current, given=current.given + len(mine), reason=reason)
    if current is not None:
        yield replace(current, last=True)


def differs_at(some: Sequence[Round], others: Sequence[Round]) -> tuple[int, int] | None:
    """The first round and token of it that a drafter proposed otherwise, if any.

    Only rounds that begin with the same token are compared. Those of unequal lengths are skipped:
    some drafters make all tokens of a draft at once.
    """
    for number, (one, other) in enumerate(zip(some, others, strict=False)):
        if one.start != other.start:
            return None
        if len(one.proposed) != len(other.proposed):
            continue
        for place, (mine, its) in enumerate(zip(one.proposed, other.proposed, strict=True)):
            if mine != its:
                return number, place
    return None
