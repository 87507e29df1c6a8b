"""Single streams that differ between releases: changes for requests that are decoded alone."""

from __future__ import annotations

from conformance.core.before_after import compared
from conformance.core.verdict import CaseResult

# Rounding alone moves the sum over a schedule's tokens by far less.
_TIMES_NOISE = 100
_LEAST_NATS = 1e-3


def moved_streams(old: CaseResult, new: CaseResult) -> str:
    """The schedules whose single streams moved, and by how much; empty if none did.

    The sum of the logprobs of their tokens (nats) is compared; other tokens change it, too. No
    verdict shows such a change, since each release is judged by its own single streams.
    """
    before, after = ({s.name: s.single_logprob for s in one.schedules} for one in (old, new))
    most = max(_LEAST_NATS, *(_TIMES_NOISE * (result.noise or 0.0) for result in (old, new)))
    moved = {
        name: abs(now - was)
        for name, (was, now) in compared(before, after).both.items()
        if was is not None and now is not None and abs(now - was) > most
    }
    if not moved:
        return ""
    names = ", ".join(sorted(moved))
    return f"({names}): single streams moved, by {max(moved.values()):.3g} nats in all"
