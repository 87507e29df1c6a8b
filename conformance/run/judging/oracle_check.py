"""Compares the oracle with itself: repeated, with other prefill pieces, and without a cache."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from conformance.checks.forced import common_steps
from conformance.core import numerics
from conformance.core.engine_options import EngineOptions
from conformance.core.picture import Picture
from conformance.core.schedule import Schedule
from conformance.core.verdict import Finding, ScheduleResult, Verdict
from conformance.reference.subject import Subject
from conformance.run.judging.judge import Numbers, Outcome, figures_of, worst, worst_numbers
from conformance.run.judging.oracle_deviation import Compared, compared
from conformance.run.judging.picturing import picture_of_oracle

# Steps of the single stream that are repeated.
_AGAIN_STEPS = 4


def judge_oracle(subject: Subject, schedules: Sequence[Schedule]) -> Outcome:
    """The oracle compared with itself: repeated, in other pieces, and without a cache."""
    findings: list[Finding] = []
    results: list[ScheduleResult] = []
    numbers: list[Numbers] = []
    pictures: list[Seen] = []
    for schedule in schedules:
        found: list[Finding] = []
        mark, aside = len(subject.meter), subject.oracle.calls
        for request in schedule.requests:
            rechunked = schedule.options.prefill_step_size < len(request.prompt)
            for judge in (_stateless, _rechunked if rechunked else _repeated):
                more, figures = judge(subject, schedule, request.request_id)
                found += [finding for finding, _ in more]
                pictures += more
                numbers += figures
        findings += found
        calls = subject.meter[mark:]
        seconds = sum(call.seconds for call in calls)
        # Excludes calls for streams and noise, which may be from an earlier case or run.
        count = len(calls) - (subject.oracle.calls - aside)
        results.append(ScheduleResult(schedule.name, worst(found), count, seconds))
    first = max(pictures, key=lambda seen: seen[0].verdict.severity, default=None)
    picture = first[1] if first is not None else None
    return Outcome(tuple(findings), tuple(results), worst_numbers(numbers), picture)


Seen = tuple[Finding, Picture]
Judged = tuple[list[Seen], list[Numbers]]


def _repeated(subject: Subject, schedule: Schedule, name: str) -> Judged:
    request, options = schedule.request(name), schedule.options
    want = subject.oracle.solo(request, options, schedule)
    subject.library.churn()
    got = subject.oracle.again(request, options, steps=_AGAIN_STEPS)
    assert got.logprobs is not None
    assert want.logprobs is not None
    steps = common_steps(got, want)
    if np.array_equal(got.logprobs[:steps], want.logprobs[:steps]):
        return [], []
    noise = subject.oracle.floor_envelope(want, options)
    found = numerics.deviation(got.logprobs[:steps], want.logprobs[:steps], noise)
    if found.within_noise:
        return [], []
    at = (schedule, name)
    what = "the single stream twice differs"
    finding = _finding(Verdict.UNSTABLE, "repeat", what, at=at, found=(found, noise))
    return [(finding, picture_of_oracle(schedule, name, want, got, (found, noise)))], []


def _rechunked(subject: Subject, schedule: Schedule, name: str) -> Judged:
    request, options = schedule.request(name), schedule.options
    want = subject.oracle.solo(request, options, schedule)
    got = subject.oracle.solo(request, EngineOptions(), None)
    found, noise = compared(subject, schedule, request, got)
    figures = [figures_of(found, noise)]
    if found.within_noise:
        return [], figures
    at = (schedule, name)
    what = f"prefill in pieces of {options.prefill_step_size} and as a whole differ"
    finding = _finding(Verdict.ORACLE, "rechunked", what, at=at, found=(found, noise))
    return [(finding, picture_of_oracle(schedule, name, want, got, (found, noise)))], figures


def _stateless(subject: Subject, schedule: Schedule, name: str) -> Judged:
    request, options = schedule.request(name), schedule.options
    check = subject.oracle.check_stateless(request, options)
    if check is None:
        return [], []
    figures = [figures_of(check.deviation, check.envelope)]
    if check.deviation.within_noise:
        return [], figures
    what = "the single stream and the pass without a cache differ"
    figures_found = (check.deviation, check.envelope)
    finding = _finding(Verdict.ORACLE, "stateless", what, at=(schedule, name), found=figures_found)
    want = subject.oracle.solo(request, options, schedule)
    return [(finding, picture_of_oracle(schedule, name, want, None, figures_found))], figures


def _finding(
    verdict: Verdict, check: str, what: str, *, at: tuple[Schedule, str], found: Compared
) -> Finding:
    deviation, noise = found
    schedule, request_id = at
    step = deviation.first_bad_step or 0
    return Finding(
        verdict,
        check,
        f"{what} by {deviation.difference[step]:.3g} nats at output token {step}",
        schedule=schedule.name,
        request_id=request_id,
        step=step,
        expected="equal up to rounding",
        got=f"{deviation.difference[step]:.6g} nats apart",
        difference=float(deviation.difference[step]),
        noise=float(noise.full[step]),
        cause="the library's single-stream decoding itself; no batch is involved",
    )
