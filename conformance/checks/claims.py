"""An engine's statements about its work besides tokens (counts, sizes, draws) must be true."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.checks.play import Play
from conformance.core.trace import Trace
from conformance.core.verdict import Finding, Verdict


def check_claims(play: Play) -> list[Finding]:
    """``protocol`` for the first claim of each kind that does not hold, in each run.

    See ``failure`` for those about work that failed.
    """
    return [finding for trace in play.traces[:2] for finding in _of_run(play, trace)]


def _of_run(play: Play, trace: Trace) -> Iterator[Finding]:
    seen: set[str] = set()
    for step in trace.steps:
        for claim in step.output.claims:
            if claim.holds or claim.failed or claim.what in seen:
                continue
            seen.add(claim.what)
            yield Finding(
                Verdict.PROTOCOL,
                "claims",
                claim.where(step.index),
                schedule=play.schedule.name,
                mode=trace.mode,
                expected=claim.found,
                got=claim.said,
                cause=claim.cause,
            )
