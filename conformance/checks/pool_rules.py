"""A pool of kept prefixes finds, holds, gives up and counts what it should.

The rules are those of mlx-vlm's server, written a second time: see ``pool_state``. Beside them, of
each prompt the state before its last token is kept, and one at the last whole interval before that.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from conformance.checks.play import Play
from conformance.checks.pool_state import SMALLEST, Rules
from conformance.core.engine_options import PrefixCaching
from conformance.core.pooled import PoolCall, Pooled, Prefix
from conformance.core.trace import Trace
from conformance.core.verdict import Finding, Verdict


def check_pooled(play: Play) -> list[Finding]:
    """``protocol`` for another prefix found or kept than by the rules, ``leak`` for wrong counts.

    Of each run the first of each.
    """
    caching = play.schedule.options.prefix_caching
    if caching is None:
        return []
    return [finding for trace in play.traces[:2] for finding in _of_run(play, trace, caching)]


def _of_run(play: Play, trace: Trace, caching: PrefixCaching) -> Iterator[Finding]:
    calls = [call for step in trace.steps for call in step.output.pooled]
    for verdict in (Verdict.PROTOCOL, Verdict.LEAK):
        found = chain(_problems(calls, caching), _left_out(calls, trace, caching))
        problems = (problem for problem in found if problem[0] is verdict)
        for _, what, expected, got in islice(problems, 1):
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


def _problems(calls: list[Pooled], caching: PrefixCaching) -> Iterator[Problem]:
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
    """Snapshots that were not taken of prompts of text whose prefill ended; other lookups."""
    taken = {call.prefix.tokens for call in calls if call.call is PoolCall.KEEP_SNAPSHOT}
    if not taken:
        return
    if any(call.call is PoolCall.FIND for call in calls):
        yield Verdict.PROTOCOL, "blocks are looked for where snapshots are kept", "no call", "calls"
    ended = {e.request_id for step in trace.steps for e in step.output.events}
    reused = {name: n for step in trace.steps for name, n in step.output.reused.items()}
    every = -(-caching.interval // caching.block_size) * caching.block_size
    for request in trace.schedule.requests:
        last = len(request.prompt) - 1
        wanted = {last, (last - 1) // every * every} if caching.snapshots != 1 else {last}
        for count in sorted(
            n for n in wanted if n >= max(SMALLEST, reused.get(request.request_id, 0))
        ):
            missing = request.prompt[:count] not in taken
            if missing and request.request_id in ended and not request.media:
                what = f"of {request.request_id}, with {last + 1} tokens, a snapshot was not taken"
                yield Verdict.PROTOCOL, what, f"at {count} tokens", "none"
