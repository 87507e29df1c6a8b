"""Compares a stream of the oracle that was made in another way with the single stream."""

from __future__ import annotations

from conformance.checks.forced import common_steps
from conformance.core import numerics
from conformance.core.schedule import Request, Schedule
from conformance.core.trace import Stream
from conformance.reference.subject import Subject

Compared = tuple[numerics.Deviation, numerics.Envelope]


def compared(subject: Subject, schedule: Schedule, request: Request, got: Stream) -> Compared:
    """The deviation of ``got`` from the request's single stream, while both have the same history.

    Greedy tokens may differ after a tie. Noise is measured only as far as the deviation requires.
    """
    oracle, options = subject.oracle, schedule.options
    want = oracle.solo(request, options, schedule)
    assert got.logprobs is not None
    assert want.logprobs is not None
    steps = common_steps(got, want)
    mine, theirs = got.logprobs[:steps], want.logprobs[:steps]
    return numerics.settle(
        lambda noise: numerics.deviation(mine, theirs, noise),
        oracle.floor_envelope(want, options),
        oracle.wider(request, options, schedule),
    )
