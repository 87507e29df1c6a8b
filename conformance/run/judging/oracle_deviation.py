"""Streams of the oracle that were made in another way, compared with the single stream."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.checks import Play
from conformance.checks.forced import common_steps
from conformance.core import numerics
from conformance.core.failures import failure_of, machine_problem
from conformance.core.schedule import Request, Schedule
from conformance.core.trace import Stream
from conformance.core.verdict import Finding, Verdict
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
        oracle.wider(request, options, schedule, steps=steps),
    )


# Checks that a single stream continues equally from a cache in a file and from one in memory ------

# Applies to the single stream from the file.
_STEPS = 2
_EXPECTED = "the single stream that goes on from the cache in memory"


def loaded(subject: Subject, played: Play) -> Iterator[Finding]:
    """``oracle`` findings if a single stream from a loaded cache fails or differs.

    The batch is compared with the cache in memory, so that it shows what loading loses even if
    merging repairs it. The first request that continues from a file represents all. If the engine
    refuses the schedule, nothing is checked.
    """
    schedule, failure = played.schedule, played.traces[0].failure
    if failure is not None and failure.unsupported:
        return
    saved = (r for r in schedule.requests if r.continues is not None and r.continues.saved)
    for request in list(saved)[:1]:
        try:
            yield from _differs(subject, schedule, request)
        except Exception as error:
            if machine_problem(error):
                raise
            raised = failure_of(error, "going on from a loaded cache in a single stream")
            got = f"{raised.type_name}: {raised.message}"
            yield _finding(schedule, request, f"raised {raised}", got)


def _differs(subject: Subject, schedule: Schedule, request: Request) -> Iterator[Finding]:
    with subject.phases("single stream"):
        got = subject.oracle.loaded(request, schedule.options, schedule, steps=_STEPS)
    if got is None:
        return
    found, _ = compared(subject, schedule, request, got)
    if not found.within_noise:
        nats = f"{float(found.difference.max()):.3g} nats off"
        yield _finding(schedule, request, f"is {nats}", nats)


def _finding(schedule: Schedule, request: Request, what: str, got: str) -> Finding:
    return Finding(
        Verdict.ORACLE,
        "loaded",
        f"a single stream from a cache that was loaded from a file {what}",
        schedule=schedule.name,
        request_id=request.request_id,
        expected=_EXPECTED,
        got=got,
        cause="what a cache writes to a file is not all that it needs",
    )
