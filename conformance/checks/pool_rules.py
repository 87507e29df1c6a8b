"""Checks that a prefix pool finds, holds, evicts and counts what it should.

The rules are those of mlx-vlm's server, implemented a second time: see ``pool_state``. In addition,
the state before each prompt's last token is kept, and the state at the last whole interval before.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from conformance.checks.play import Play
from conformance.checks.pool_state import SMALLEST, Rules
from conformance.core.engine_options import PrefixCaching
from conformance.core.pooled import PoolCall, Pooled, Prefix
from conformance.core.schedule import Request
from conformance.core.trace import Trace
from conformance.core.verdict import Finding, Verdict


def check_pooled(play: Play) -> list[Finding]:
    """``protocol`` for a prefix found or kept against the rules, ``leak`` for wrong counts.

    For each run the first of each kind.
    """
    caching = play.schedule.options.prefix_caching
    if caching is None:
        return []
    return [finding for trace in play.traces[:2] for finding in _of_run(play, trace, caching)]


def _of_run(play: Play, trace: Trace, caching: PrefixCaching) -> Iterator[Finding]:
    calls = [call for step in trace.steps for call in step.output.pooled]
    for verdict in (Verdict.PROTOCOL, Verdict.LEAK):
        found = chain(problems(calls, caching), _left_out(calls, trace, caching))
        wrong = (problem for problem in found if problem[0] is verdict)
        for _, what, expected, got in islice(wrong, 1):
            yield Finding(
                verdict,
                "pool_rules",
                what,
                schedule=play.schedule.name,
                mode=trace.mode,
                expected=expected,
                got=got,
                cause="the pool of kept prefixes does not keep its own rules",
            )


Problem = tuple[Verdict, str, str, str]


def problems(calls: list[Pooled], caching: PrefixCaching) -> Iterator[Problem]:
    """A deviation from the rules: the verdict, its subject, the expected and the actual value."""
    rules = Rules(caching)
    for number, call in enumerate(calls):
        found = rules.play(call)
        if call.found != found:
            what = f"of a prompt of {len(call.prefix.tokens)} tokens {call.call} gives another part"
            yield Verdict.PROTOCOL, what, f"{found} tokens", f"{call.found} tokens"
        for what, mine, theirs in rules.apart(call):
            yield (
                Verdict.PROTOCOL,
                f"after call {number}, {call.call}, {what}",
                _named(mine),
                _named(theirs),
            )
            return
        for name, count in rules.counted(call).items() if call.counted else ():
            if call.counted.get(name) != count:
                what = f"after call {number}, {call.call}, the count {name} is wrong"
                yield Verdict.LEAK, what, str(count), str(call.counted.get(name, "none"))


def _named(kept: list[Prefix | None]) -> str:
    return ", ".join(f"{len(one.tokens)}" if one else "-" for one in kept) or "none"


def _left_out(calls: list[Pooled], trace: Trace, caching: PrefixCaching) -> Iterator[Problem]:
    """Prefixes that finished prefills did not keep; blocks and snapshots side by side."""
    asked = {call.call for call in calls}
    blocks, snapshots = PoolCall.FIND in asked, PoolCall.KEEP_SNAPSHOT in asked
    if blocks and snapshots:
        yield Verdict.PROTOCOL, "blocks are looked for where snapshots are kept", "no call", "calls"
        return
    kind = PoolCall.KEEP if blocks else PoolCall.KEEP_SNAPSHOT
    taken = {call.prefix.tokens for call in calls if call.call is kind}
    ended = {e.request_id for step in trace.steps for e in step.output.events}
    reused = {name: n for step in trace.steps for name, n in step.output.reused.items()}
    for request in trace.schedule.requests if blocks or snapshots else ():
        count = len(request.prompt)
        wanted = {count} if blocks else _snapshots_of(request, caching)
        for least in sorted(n for n in wanted if n > reused.get(request.request_id, 0)):
            if request.request_id in ended and request.prompt[:least] not in taken:
                what = f"the prompt of {request.request_id}, {count} tokens, was not kept"
                yield Verdict.PROTOCOL, what, f"kept at {least} tokens", "not kept"


def _snapshots_of(request: Request, caching: PrefixCaching) -> set[int]:
    """The lengths at which snapshots are taken of a prompt, if it holds text alone."""
    last = len(request.prompt) - 1
    every = -(-caching.interval // caching.block_size) * caching.block_size
    wanted = {last, (last - 1) // every * every} if caching.snapshots != 1 else {last}
    return {count for count in wanted if count >= SMALLEST and not request.media}
