"""Only what an earlier request of the same tenant had is reused, and everything found is.

For media only tokens are compared: another medium's keys show as wrong results.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from conformance.checks.play import Play
from conformance.core.pooled import PoolCall
from conformance.core.schedule import Request
from conformance.core.trace import Trace
from conformance.core.verdict import Finding, Verdict

_FINDS = frozenset({PoolCall.FIND, PoolCall.FIND_SNAPSHOT, PoolCall.FIND_ON_DISK})


def check_reused(play: Play) -> list[Finding]:
    """``protocol`` for a reused prefix that no other request of the same tenant begins with.

    ``cost`` for computing a part of a prompt that the prefix pool had found.
    """
    return [
        finding
        for trace in play.traces[:2]
        for finding in (*_of_run(play, trace), *_found_and_computed(play, trace))
    ]


def _of_run(play: Play, trace: Trace) -> Iterator[Finding]:
    reused = {name: n for step in trace.steps for name, n in step.output.reused.items()}
    asked = {request.request_id: request for request in play.schedule.requests}
    sequences = {name: _sequence(request, trace) for name, request in asked.items()}
    for name in sorted(reused.keys() & asked.keys()):
        mine, count = asked[name], reused[name]
        shared = [
            (_common(mine.prompt, sequences[other.request_id]), other.tenant)
            for other in asked.values()
            if other is not mine and _first(trace, other) <= _first(trace, mine)
        ]
        most = max((length for length, tenant in shared if tenant == mine.tenant), default=0)
        if count > most:
            right = trace.stream(name).tokens == play.want[name].tokens
            # Equal tokens of another tenant make equal keys: right tokens prove nothing there.
            of_another = count <= max((length for length, _ in shared), default=0)
            yield Finding(
                Verdict.PROTOCOL,
                "reuse",
                "counts more of a prompt as reused than any other request of its tenant begins "
                "with; its tokens are right"
                if right and not of_another
                else "reused more of a prompt than any other request of its tenant begins with",
                schedule=play.schedule.name,
                mode=trace.mode,
                request_id=name,
                expected=f"at most {most} tokens",
                got=f"{count} tokens",
                cause="what one tenant's requests left is found for another's"
                if of_another
                else "the count is wrong, not the prefix"
                if right
                else "kept prefixes are found by less than they depend on",
            )


def _found_and_computed(play: Play, trace: Trace) -> Iterator[Finding]:
    for request in play.schedule.requests:
        name, length = request.request_id, len(request.prompt)
        kept = _found(play, trace, request)
        computed = sum(step.output.processed.get(name, 0) for step in trace.steps)
        if kept and computed > length - kept:
            yield Finding(
                Verdict.COST,
                "reuse",
                "a kept prefix was found, and its tokens were computed again",
                schedule=play.schedule.name,
                mode=trace.mode,
                request_id=name,
                expected=f"at most {length - kept} of {length} tokens computed",
                got=f"{computed} tokens",
                cause="what was found is not used, though the pool counts it as a hit",
            )


def _found(play: Play, trace: Trace, request: Request) -> int:
    """How many tokens the pool found when it began; 0 if others with its prompt began."""
    prompts = {r.request_id: r.prompt for r in play.schedule.requests}
    for step in trace.steps:
        began = {*step.output.processed, *step.output.reused}
        if request.request_id in began:
            same = [name for name in began if prompts.get(name) == request.prompt]
            calls = (c for c in step.output.pooled if c.call in _FINDS)
            found = (c.found for c in calls if c.prefix.tokens == request.prompt)
            return max(found, default=0) if len(same) == 1 else 0
    return 0


def _first(trace: Trace, request: Request) -> int:
    """The first step with the request."""
    name = request.request_id
    known = (step.index for step in trace.steps if name in {**step.stages, **step.output.processed})
    return next(known, 0)


def _sequence(request: Request, trace: Trace) -> tuple[int, ...]:
    events = (event for step in trace.steps for event in step.output.events)
    said = (event.token for event in events if event.request_id == request.request_id)
    return (*request.prompt, *said)


def _common(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
