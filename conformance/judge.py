"""Plays the schedules of a case and lets the checks say what they find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from conformance import numerics
from conformance.checks import CHECKS, Play
from conformance.checks.forced import measure
from conformance.checks.stability import same_bits
from conformance.engine import Capability, Engine
from conformance.numerics import Envelope
from conformance.runner import play
from conformance.scenarios import Brief, Scenario
from conformance.scenarios.witnesses import padded_positions
from conformance.schedule import Schedule, validate
from conformance.subject import Subject
from conformance.trace import Trace
from conformance.verdict import Finding, ScheduleResult, Verdict

# Says of a batched case that its oracle is itself in question; judges nothing.
_DOUBT = Finding(
    Verdict.EXACT,
    "oracle",
    "the single stream that this was held against disagrees with the pass without a cache: "
    "see the scenario `repeat`",
)


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
        bounded=subject.library.bounds_caches(subject.model),
        seed=seed,
        capabilities=engine.capabilities,
        probes=engine.probes(),
        solo=lambda request, options: subject.oracle.solo(request, options, None),
        modalities=family.facts.modalities,
        sizes=family.facts.sizes,
        single=family.facts.single,
        media_last=subject.library.puts_media_last(subject.model),
        drafters=tuple(family.facts.drafters),
        compose=lambda parts: subject.library.compose(subject.model, parts),
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
        with subject.phases("checks"):
            found = [finding for check in CHECKS for finding in check(played)]
        found += _missed(played)
        findings += found
        results.append(_result(schedule, found, played.traces))
        numbers += _numbers(played)
        traces += played.traces
    if subject.oracle.doubtful:
        findings.append(_DOUBT)
    if worst(findings) is not Verdict.UNSUPPORTED:
        findings += _witness_findings(scenario, traces)
    return Outcome(tuple(findings), tuple(results), worst_numbers(numbers))


def play_schedule(subject: Subject, engine: type[Engine], schedule: Schedule) -> Play:
    """Run the schedule at least twice, with dirtied memory between the runs.

    The forced and the free run are the same run twice as long as the engine chooses the oracle's
    tokens: then they must agree to the bit. Where they do not, the first is run once more. With a
    drafter both runs are free.
    """
    validate(schedule)
    options, oracle = schedule.options, subject.oracle
    with subject.phases("single stream"):
        want = {r.request_id: oracle.solo(r, options, schedule) for r in schedule.requests}
    forced = {name: stream.tokens for name, stream in want.items()}
    # Which drafts are accepted hangs on the model's own choice, so that is never overruled.
    drafting = options.drafting is not None
    first_tokens = forced if Capability.FORCED in engine.capabilities and not drafting else None

    def run(tokens: dict[str, tuple[int, ...]] | None) -> Trace:
        with subject.phases("memory churn"):
            subject.library.churn()
        with subject.phases("engine"):
            return play(
                engine,
                subject.model,
                schedule,
                meter=subject.meter,
                forced=tokens,
                hints=forced if drafting else None,
            )

    def envelope(name: str) -> Envelope:
        with subject.phases("noise"):
            return oracle.envelope(schedule.request(name), options, schedule)

    def thorough(name: str) -> Envelope:
        with subject.phases("noise"):
            return oracle.envelope(schedule.request(name), options, schedule, thorough=True)

    def played(*traces: Trace) -> Play:
        return Play(
            schedule,
            traces,
            want,
            floor=lambda name: oracle.floor_envelope(want[name]),
            envelope=envelope,
            thorough=thorough,
            full_logprobs=Capability.LOGPROBS in engine.capabilities and not drafting,
            staged=Capability.STAGES in engine.capabilities,
        )

    first = run(first_tokens)
    if first.failure is not None or first.out_of_steps:
        return played(first)
    second = run(None)
    if second.failure is not None or same_bits(played(first, second), first, second):
        return played(first, second)
    return played(first, second, run(first_tokens))


def figures_of(found: numerics.Deviation, noise: numerics.Envelope) -> Numbers:
    """The worst step's difference, noise and ratio."""
    step = found.worst_step
    return Numbers(float(found.difference.max()), float(noise.full[step]), float(found.ratio[step]))


def _numbers(played: Play) -> list[Numbers]:
    figures = []
    for request in played.schedule.requests:
        found = measure(played, played.traces[0], request.request_id)
        if found is not None:
            figures.append(figures_of(*found))
    return figures


def worst_numbers(figures: Sequence[Numbers]) -> Numbers | None:
    """The figures with the largest ratio, if there are any."""
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
    """Triggers that never fired in the first run; in a free run a tie may rightly miss some."""
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
