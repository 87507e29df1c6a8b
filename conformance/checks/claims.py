"""An engine's statements about its work besides tokens (counts, sizes, draws) must be true."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.checks.play import Play
from conformance.core.trace import Claim, Trace
from conformance.core.verdict import Finding, Verdict


def check_claims(play: Play) -> list[Finding]:
    """``protocol`` for the first claim of each kind that does not hold, in each run, or ``drift``.

    See ``failure`` for those about work that failed.
    """
    return [
        Finding(
            Verdict.DRIFT if claim.drift else Verdict.PROTOCOL,
            "claims",
            claim.where(step),
            schedule=play.schedule.name,
            mode=trace.mode,
            expected=claim.found,
            got=claim.said,
            cause=claim.cause,
        )
        for trace in play.traces[:2]
        for step, claim in broken(trace)
        if not claim.failed
    ]


def broken(trace: Trace) -> Iterator[tuple[int, Claim]]:
    """The step and the first claim of each kind that does not hold."""
    seen: set[str] = set()
    for step in trace.steps:
        for claim in step.output.claims:
            if not claim.holds and claim.what not in seen:
                seen.add(claim.what)
                yield step.index, claim
