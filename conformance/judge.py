"""Plays the schedules of a case and lets the checks say what they find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from conformance import numerics
from conformance.checks import CHECKS, Play
from conformance.checks.forced import common_steps, measure
from conformance.checks.stability import same_bits
from conformance.engine import Capability, Engine
from conformance.runner import play
from conformance.scenarios import Brief, Scenario
from conformance.scenarios.witnesses import padded_positions
from conformance.schedule import EngineOptions, Schedule, validate
from conformance.subject import Subject
from conformance.trace import Trace
from conformance.verdict import Finding, ScheduleResult, Verdict

# Steps of the single stream that are made a second time.
_AGAIN_STEPS = 4


@dataclass(frozen=True)
class Numbers:
    """The worst deviation of a case, in nats; ``ratio`` is difference over noise."""

    difference: float = 0.0
    noise: float = 0.0
    ratio: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """What a case came to."""

    findings: tuple[Finding, ...]
    schedules: tuple[ScheduleResult, ...]
    numbers: Numbers | None

    @property
    def verdict(self) -> Verdict:
        """The worst of all findings; exact without any."""
        return worst(self.findings)


def worst(findings: Sequence[Finding]) -> Verdict:
    """The most severe verdict of the findings; exact without any."""
    return max((f.verdict for f in findings), key=lambda v: v.severity, default=Verdict.EXACT)


def brief_for(subject: Subject, engine: type[Engine], seed: int) -> Brief:
    """What scenarios may know of the subject."""
    family = subject.family
    return Brief(
        tokens=family.tokens,
        window=family.facts.window,
        seed=seed,
        capabilities=engine.capabilities,
        probes=engine.probes(),
        solo=lambda request, options: subject.truth.solo(request, options, None),
    )


def judge_batched(
    subject: Subject, engine: type[Engine], scenario: Scenario, schedules: Sequence[Schedule]
) -> Outcome:
    """Play each schedule forced and free, and check it against the single streams."""
    findings: list[Finding] = []
    results: list[ScheduleResult] = []
    numbers: list[Numbers] = []
    traces: list[Trace] = []
    for schedule in schedules:
        played = play_schedule(subject, engine, schedule)
        found = [finding for check in CHECKS for finding in check(played)]
        found += _missed(played)
        findings += found
        results.append(_result(schedule, found, played.traces))
        numbers += _numbers(played)
        traces += played.traces
    if worst(findings) is not Verdict.UNSUPPORTED:
        findings += _witness_findings(scenario, traces)
    return Outcome(tuple(findings), tuple(results), _worst_numbers(numbers))


def play_schedule(subject: Subject, engine: type[Engine], schedule: Schedule) -> Play:
    """Run the schedule at least twice, with dirtied memory between the runs.

    The forced and the free run are the same run twice as long as the engine chooses the oracle's
    tokens: then they must agree to the bit. Where they do not, the first is run once more.
    """
    validate(schedule)
    options, truth = schedule.options, subject.truth
    want = {r.request_id: truth.solo(r, options, schedule) for r in schedule.requests}
    forced = {name: stream.tokens for name, stream in want.items()}
    first_tokens = forced if Capability.FORCED in engine.capabilities else None

    def run(tokens: dict[str, tuple[int, ...]] | None) -> Trace:
        subject.library.churn()
        return play(engine, subject.model, schedule, meter=subject.meter, forced=tokens)

    def played(*traces: Trace) -> Play:
        return Play(
            schedule,
            traces,
            want,
            floor=lambda name: truth.floor_envelope(want[name]),
            envelope=lambda name: truth.envelope(schedule.request(name), options, schedule),
            full_logprobs=Capability.LOGPROBS in engine.capabilities,
            staged=Capability.STAGES in engine.capabilities,
        )

    first = run(first_tokens)
    if first.failure is not None or first.out_of_steps:
        return played(first)
    second = run(None)
    if second.failure is not None or same_bits(played(first, second), first, second):
        return played(first, second)
    return played(first, second, run(first_tokens))


def judge_alone(subject: Subject, schedules: Sequence[Schedule]) -> Outcome:
    """The oracle against itself: the same again, in other pieces, and without a cache."""
    findings: list[Finding] = []
    results: list[ScheduleResult] = []
    numbers: list[Numbers] = []
    for schedule in schedules:
        found: list[Finding] = []
        mark = len(subject.meter)
        for request in schedule.requests:
            rechunked = schedule.options.prefill_step_size < len(request.prompt)
            for judge in (_stateless, _rechunked if rechunked else _repeated):
                more, figures = judge(subject, schedule, request.request_id)
                found += more
                numbers += figures
        findings += found
        calls = subject.meter[mark:]
        seconds = sum(call.seconds for call in calls)
        results.append(ScheduleResult(schedule.name, worst(found), len(calls), seconds))
    return Outcome(tuple(findings), tuple(results), _worst_numbers(numbers))


Judged = tuple[list[Finding], list[Numbers]]


def _repeated(subject: Subject, schedule: Schedule, name: str) -> Judged:
    request, options = schedule.request(name), schedule.options
    want = subject.truth.solo(request, options, schedule)
    subject.library.churn()
    got = subject.truth.again(request, options, steps=_AGAIN_STEPS)
    assert got.logprobs is not None
    assert want.logprobs is not None
    steps = common_steps(got, want)
    if np.array_equal(got.logprobs[:steps], want.logprobs[:steps]):
        return [], []
    noise = subject.truth.floor_envelope(want)
    found = numerics.deviation(got.logprobs[:steps], want.logprobs[:steps], noise)
    if found.within_noise:
        return [], []
    what = "the single stream twice differs"
    return [_alone(Verdict.UNSTABLE, "repeat", what, schedule, name, found, noise)], []


def _rechunked(subject: Subject, schedule: Schedule, name: str) -> Judged:
    request, options = schedule.request(name), schedule.options
    want = subject.truth.solo(request, options, schedule)
    got = subject.truth.solo(request, EngineOptions(), None)
    assert got.logprobs is not None
    assert want.logprobs is not None
    # Greedy tokens may part at a tie; up to there both saw the same history.
    steps = common_steps(got, want)
    noise = subject.truth.envelope(request, options, schedule)
    found = numerics.deviation(got.logprobs[:steps], want.logprobs[:steps], noise)
    figures = [_figures(found, noise)]
    if found.within_noise:
        return [], figures
    what = f"prefill in pieces of {options.prefill_step_size} and as a whole differ"
    return [_alone(Verdict.ORACLE, "rechunked", what, schedule, name, found, noise)], figures


def _stateless(subject: Subject, schedule: Schedule, name: str) -> Judged:
    check = subject.truth.check_stateless(schedule.request(name), schedule.options)
    if check is None:
        return [], []
    figures = [_figures(check.deviation, check.envelope)]
    if check.deviation.within_noise:
        return [], figures
    what = "the single stream and the pass without a cache differ"
    finding = _alone(
        Verdict.ORACLE, "stateless", what, schedule, name, check.deviation, check.envelope
    )
    return [finding], figures


def _alone(
    verdict: Verdict,
    check: str,
    what: str,
    schedule: Schedule,
    name: str,
    found: numerics.Deviation,
    noise: numerics.Envelope,
) -> Finding:
    step = found.first_bad_step or 0
    return Finding(
        verdict,
        check,
        f"{what} by {found.difference[step]:.3g} nats at output token {step}",
        schedule=schedule.name,
        request_id=name,
        step=step,
        expected="equal up to rounding",
        got=f"{found.difference[step]:.6g} nats apart",
        difference=float(found.difference[step]),
        noise=float(noise.full[step]),
        cause="the library's single-stream decoding itself; no batch is involved",
    )


def _figures(found: numerics.Deviation, noise: numerics.Envelope) -> Numbers:
    step = found.worst_step
    return Numbers(
        float(found.difference.max()), float(noise.full[step]), float(found.ratio[step])
    )


def _numbers(played: Play) -> list[Numbers]:
    figures = []
    for request in played.schedule.requests:
        found = measure(played, played.traces[0], request.request_id)
        if found is not None:
            figures.append(_figures(*found))
    return figures


def _worst_numbers(figures: Sequence[Numbers]) -> Numbers | None:
    return max(figures, key=lambda figure: figure.ratio, default=None)


def _result(
    schedule: Schedule, findings: Sequence[Finding], traces: Sequence[Trace]
) -> ScheduleResult:
    calls = [call for trace in traces for call in trace.forwards]
    padded = sum(padded_positions(trace) for trace in traces)
    return ScheduleResult(
        schedule.name,
        worst(findings),
        forward_calls=len(calls),
        forward_seconds=sum(call.seconds for call in calls),
        padded_positions=padded,
        real_positions=sum(call.positions for call in calls) - padded,
    )


def _missed(played: Play) -> list[Finding]:
    return [
        Finding(
            Verdict.VACUOUS,
            "witness",
            f"never happened: {what}",
            schedule=played.schedule.name,
            mode=trace.mode,
        )
        for trace in played.traces[:1]
        for what in trace.missed
    ]


def _witness_findings(scenario: Scenario, traces: Sequence[Trace]) -> list[Finding]:
    return [
        Finding(
            Verdict.VACUOUS,
            "witness",
            f"no schedule of {scenario.name} reached: {witness.name}",
            expected=witness.name,
            got="not seen",
            cause="the scenario proved nothing on this engine",
        )
        for witness in scenario.witnesses
        if not any(witness.seen(trace) for trace in traces)
    ]


