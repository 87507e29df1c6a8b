"""Witnesses about drafts: how many of their tokens were accepted, and for which requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from conformance.core.engine import Capability
from conformance.core.schedule import Stage
from conformance.core.trace import FinishReason, Trace
from conformance.scenarios.scenario import Witness


@dataclass
class _Round:
    """A draft of ``drafted`` tokens, and how many tokens were produced before the next one."""

    drafted: int
    given: int = 0
    last: bool = False
    request_id: str = ""
    reason: FinishReason | None = None


def accepted_all() -> Witness:
    """All tokens of a draft were accepted, and one more token was produced."""
    return Witness(
        "a draft accepted whole", lambda t: any(r.given == r.drafted + 1 for r in _rounds(t))
    )


def accepted_some() -> Witness:
    """Some of a draft's first tokens were accepted, but not all."""
    return Witness(
        "a draft accepted in part",
        lambda t: any(1 < r.given <= r.drafted and not r.last for r in _rounds(t)),
    )


def rejected() -> Witness:
    """A draft's first token was rejected."""
    return Witness(
        "a draft rejected", lambda t: any(r.given == 1 and not r.last for r in _rounds(t))
    )


def limited_within() -> Witness:
    """A request reached its limit in a round in which it had a draft.

    Some engines draft no further than the limit, so that the whole draft may be accepted.
    """
    return Witness(
        "a limit within a draft",
        lambda t: any(
            r.reason is FinishReason.LENGTH and r.given > 0 < r.drafted for r in _rounds(t)
        ),
    )


def stopped_within() -> Witness:
    """A request ended with a stop sequence before the end of its draft."""
    return Witness(
        "a stop within a draft",
        lambda t: any(
            r.reason is FinishReason.STOP and 0 < r.given <= r.drafted for r in _rounds(t)
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
            for r in _rounds(t)
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


def _rounds(trace: Trace) -> Iterator[_Round]:
    """All drafts of all requests; ``last`` are the drafts with which their request ended."""
    for request in trace.schedule.requests:
        name, current = request.request_id, None
        for step in trace.steps:
            if name in step.output.drafted:
                if current is not None:
                    yield current
                current = _Round(step.output.drafted[name], request_id=name)
            if current is not None:
                mine = [event for event in step.output.events if event.request_id == name]
                current.given += len(mine)
                current.last = any(event.finish_reason for event in mine) or current.last
                ends = (event.finish_reason for event in mine if event.finish_reason)
                current.reason = next(ends, current.reason)
        if current is not None:
            current.last = True
            yield current
