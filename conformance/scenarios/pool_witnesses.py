"""Witnesses about a prefix pool: prefixes evicted, in use, or found in files."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from conformance.core.engine import Capability
from conformance.core.pooled import PoolCall, Pooled
from conformance.core.trace import Trace
from conformance.scenarios.scenario import Witness

_SEVERAL = 2


def given_up() -> Witness:
    """A stored block or snapshot was evicted by a call."""
    return Witness(
        "a kept prefix that is given up",
        lambda trace: any(
            set(a.sizes) - set(b.sizes) and b.call is not PoolCall.RESTART
            for a, b in pairwise(_calls(trace))
        ),
    )


def held_by_rows() -> Witness:
    """Several rows held the same block, or rows were restored from several snapshots."""

    def seen(trace: Trace) -> bool:
        calls = list(_calls(trace))
        twice = any(count >= _SEVERAL for call in calls for count in call.held.values())
        found = [c for c in calls if c.call is PoolCall.FIND_SNAPSHOT and c.found]
        return twice or len(found) >= _SEVERAL

    return Witness("prefixes of several rows at once", seen)


def from_files() -> Witness:
    """A prefix was found while nothing was in memory."""
    return Witness(
        "a prefix from files",
        lambda trace: any(_read(a, b) and not a.sizes for a, b in pairwise(_calls(trace))),
    )


def behind_memory() -> Witness:
    """A prefix was found in files while other prefixes were in memory."""
    return Witness(
        "a prefix from files behind memory",
        lambda trace: any(_read(a, b) and a.sizes for a, b in pairwise(_calls(trace))),
    )


def tenants_apart() -> Witness:
    """Each tenant reused its own earlier prompts; its first request reused nothing."""

    def seen(trace: Trace) -> bool:
        tenants = {r.request_id: r.tenant for r in trace.schedule.requests}
        reused = {name for step in trace.steps for name in step.output.reused}
        return {tenants[name] for name in reused} == set(tenants.values())

    return Witness("a reused prefix of each tenant", seen, frozenset({Capability.TENANTS}))


def _read(before: Pooled, call: Pooled) -> bool:
    """Whether a prefix was found that was not in memory before."""
    if call.call not in {PoolCall.FIND_SNAPSHOT, PoolCall.FIND_ON_DISK} or not call.on_disk:
        return False
    known = {name.tokens[: call.found] for name in before.sizes}
    return bool(call.found) and call.prefix.tokens[: call.found] not in known


def _calls(trace: Trace) -> Iterator[Pooled]:
    for step in trace.steps:
        yield from step.output.pooled
