"""Runs the schedules of a case and collects the findings of the checks."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from conformance.checks import CHECKS, Play
from conformance.checks.contract_counts import costs
from conformance.checks.forced import measure
from conformance.checks.policy import cache_shares
from conformance.core import numerics
from conformance.core.engine import Capability, Engine, PrefixReuse, equipped
from conformance.core.errors import NotOffered
from conformance.core.excused import offered
from conformance.core.failures import failure_of, machine_problem
from conformance.core.picture import Picture
from conformance.core.schedule import Schedule, Stage
from conformance.core.trace import Trace
from conformance.core.verdict import Finding, ScheduleResult, Verdict, WitnessResult, most_severe
from conformance.reference.subject import Subject
from conformance.report.history import wrong_requests
from conformance.run.judging.oracle_deviation import loaded
from conformance.run.judging.picturing import picture_of
from conformance.run.judging.playing import play_schedule
from conformance.run.judging.witnessed import missed, witnessed
from conformance.run.unexercised import exercised
from conformance.scenarios import Brief, Scenario
from conformance.scenarios.foreseen import block_size, common
from conformance.scenarios.witnesses import padded_positions

# Whether these findings are enough, so that the rest of the case need not be run.
Until = Callable[[Sequence[Finding]], bool]

# Added to a batched case whose oracle is doubtful; does not change the verdict.
_DOUBT = Finding(
    Verdict.EXACT,
    "oracle",
    "the single stream that this was compared with disagrees with the pass without a cache: "
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
    """The findings, schedules and numbers of a case."""

    findings: tuple[Finding, ...]
    schedules: tuple[ScheduleResult, ...]
    numbers: Numbers | None
    picture: Picture | None = None
    left_out: tuple[str, ...] = ()
    witnesses: tuple[WitnessResult, ...] = ()
    exercised: frozenset[Capability] = frozenset()

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all findings; exact without any.

        What a server does not offer counts only if it offers none of the schedules.
        """
        return worst(offered(self.findings, [one.name for one in self.schedules]))


def worst(findings: Sequence[Finding]) -> Verdict:
    """The most severe verdict of the findings; exact without any."""
    return most_severe(f.verdict for f in findings)


def brief_for(subject: Subject, engine: type[Engine], seed: int) -> Brief:
    """The facts about the subject that scenarios may use."""
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
        required=family.facts.required,
        beside=family.facts.beside,
        single=family.facts.single,
        media_last=subject.library.puts_media_last(subject.model),
        drafters=tuple(equipped(family, engine).facts.drafters),
        compose=lambda parts: subject.library.compose(subject.model, parts),
        heads=lambda: subject.library.head_sizes(subject.model),
        schemes=subject.library.schemes,
        filters=subject.library.filters,
        texts=family.checkpoint.texts if family.checkpoint is not None else (),
        family=family.name,
        library=family.facts.library,
        uncut=bool(family.facts.uncut_media),
        longest=family.longest,
    )


def judge_batched(
    subject: Subject,
    engine: type[Engine],
    scenario: Scenario,
    schedules: Sequence[Schedule],
    *,
    left_out: tuple[str, ...] = (),
    until: Until | None = None,
    twice: bool = True,
) -> Outcome:
    """Run each schedule and check it against the single streams.

    Args:
        twice: run the first schedule twice whatever its result, to detect a read of uninitialized
            memory that gives right numbers once; all others are rerun only if they differ from the
            oracle.
        left_out: the scenario's other schedules; they may have a missing witness.
        until: stop after the first run whose findings satisfy it.
    """
    findings: list[Finding] = []
    shown: tuple[WitnessResult, ...] = ()
    results: list[ScheduleResult] = []
    numbers: list[Numbers] = []
    plays: list[Play] = []
    failed: list[Exception] = []
    twice = twice and Capability.SERVED not in engine.capabilities
    for index, schedule in enumerate(schedules):
        start = time.perf_counter()
        tried = _attempt(subject, engine, schedule, once=index > 0 or not twice, until=until)
        alone = [tried.finding] if tried.finding is not None else []
        if tried.play is None:
            findings += alone
            if tried.error and not isinstance(tried.error, NotOffered) and not schedule.options.kv:
                failed.append(tried.error)
            results.append(ScheduleResult(schedule.name, worst(alone), seconds=_since(start)))
            continue
        played = dataclasses.replace(tried.play, plain=_plain_run(schedule, plays))
        found = [*alone, *_findings(subject, played)]
        found += [*missed(played), *undeclared(played, engine), *loaded(subject, played)]
        findings += found
        result = _result(played, found)
        results.append(msgspec.structs.replace(result, seconds=_since(start)))
        numbers += numbers_of(played)
        plays.append(played)
        if until is not None and until(found):
            ended = worst_numbers(numbers)
            return Outcome(tuple(findings), tuple(results), ended, left_out=left_out)
    if failed and len(failed) == len(schedules):
        raise failed[0]  # no request can be decoded alone: a verdict on the whole case
    if subject.oracle.doubtful:
        findings.append(_DOUBT)
    if worst(offered(findings, [one.name for one in results])) is not Verdict.UNSUPPORTED:
        shown, missing = witnessed(
            scenario, schedules, plays, engine, subject.model_for(engine), left_out=left_out
        )
        findings += missing
    return Outcome(
        tuple(findings),
        tuple(results),
        worst_numbers(numbers),
        picture_of(plays, findings),
        left_out,
        shown,
        frozenset(used for played in plays for trace in played.traces for used in exercised(trace)),
    )


def _since(start: float) -> float:
    return round(time.perf_counter() - start, 4)


def _findings(subject: Subject, played: Play) -> list[Finding]:
    """The findings of all checks about a schedule that was run."""
    with subject.phases("checks"):
        return [finding for check in CHECKS for finding in check(played)]


def _attempt(
    subject: Subject,
    engine: type[Engine],
    schedule: Schedule,
    *,
    once: bool,
    until: Until | None,
) -> Attempt:
    """The run of a schedule, or why its single stream fails; others may have theirs."""

    def enough(played: Play) -> bool:
        return until is not None and until(_findings(subject, played))

    return attempt(
        schedule,
        lambda uncut: play_schedule(
            subject, engine, schedule, once=once, enough=enough, uncut=uncut
        ),
    )


def figures_of(found: numerics.Deviation, noise: numerics.Envelope) -> Numbers:
    """The worst step's difference, noise and ratio."""
    step = found.worst_step
    return Numbers(float(found.difference.max()), float(noise.full[step]), float(found.ratio[step]))


def numbers_of(played: Play) -> list[Numbers]:
    """The figures of each request that can be compared, in its first run."""
    figures = []
    for request in played.schedule.requests:
        found = measure(played, played.traces[0], request.request_id)
        if found is not None:
            figures.append(figures_of(*found))
    return figures


def worst_numbers(figures: Sequence[Numbers]) -> Numbers | None:
    """The figures with the largest ratio, if there are any."""
    return max(figures, key=lambda figure: figure.ratio, default=None)


def _plain_run(schedule: Schedule, plays: Sequence[Play]) -> Trace | None:
    """The earlier run of an equal schedule without quantization, if any."""
    plain = msgspec.structs.replace(schedule.options, kv=None)
    return next(
        (
            played.traces[0]
            for played in plays
            if schedule.options.kv is not None
            and played.schedule.options == plain
            and played.schedule.arrivals == schedule.arrivals
        ),
        None,
    )


def _result(played: Play, findings: Sequence[Finding]) -> ScheduleResult:
    traces, plain = played.traces, played.plain
    calls = [call for trace in traces for call in trace.forwards]
    padded = sum(padded_positions(trace) for trace in traces)
    shares = cache_shares(traces[0], plain) if plain is not None else None
    return ScheduleResult(
        played.schedule.name,
        worst(findings),
        forward_calls=len(calls),
        forward_seconds=sum(call.seconds for call in calls),
        padded_positions=padded,
        real_positions=sum(call.positions for call in calls) - padded,
        # Reads before the first call are not part of the run.
        host_reads=sum(call.reads for call in traces[0].forwards[1:]),
        longest_wait=longest_wait(traces[0]),
        cache_share=shares.whole if shares is not None else None,
        quantized_share=shares.quantized if shares is not None else None,
        costs=costs(played),
        single_logprob=_single_logprob(played),
        wrong=tuple(wrong_requests(worst(findings), findings)),
    )


def _single_logprob(played: Play) -> float | None:
    """The sum of the logprobs of the single streams' tokens, if they have any.

    Of requests that are removed, how many tokens are known depends on the run.
    """
    removed = played.schedule.removed_ids
    streams = [stream for name, stream in played.want.items() if name not in removed]
    tables = [(s.logprobs, s.tokens) for s in streams if s.logprobs is not None]
    given = [float(rows[np.arange(len(tokens)), list(tokens)].sum()) for rows, tokens in tables]
    total = sum(given)
    return round(total, 5) if given and np.isfinite(total) else None


def longest_wait(trace: Trace) -> int:
    """The largest number of model calls in a step that started with a decoding request."""
    waits = (len(step.forwards) for step in trace.steps if step.in_stage(Stage.DECODE))
    return max(waits, default=0)


# Schedules whose single stream fails: their findings, and what to compare them with instead -------


@dataclass(frozen=True)
class Attempt:
    """A schedule that was run, or the reason why it could not be.

    Attributes:
        play: the run; ``None`` without a single stream.
        finding: the finding about the single stream, if it failed.
        error: the exception of the single stream, if there is none to compare with.
    """

    play: Play | None
    finding: Finding | None = None
    error: Exception | None = None


def attempt(schedule: Schedule, play: Callable[[bool], Play]) -> Attempt:
    """Run a schedule; compare with single streams of whole prompts if those in pieces fail.

    A release whose single stream cannot take a prompt in pieces may do so in a batch: the verdict
    is then ``oracle``, in addition to any finding in the batch.

    Args:
        play: runs the schedule; with true, no prompt of a single stream is cut.

    Raises:
        Exception: an error of the machine, not of the library.
    """
    try:
        return Attempt(play(False))
    except Exception as error:
        if machine_problem(error):
            raise
        first = error
    finding = _finding(schedule, first)
    if not _cut(schedule):
        return Attempt(None, finding, first)
    try:
        played = play(True)
    except Exception as error:
        if machine_problem(error):
            raise
        return Attempt(None, finding, first)
    what = f"{finding.what}; compared with single streams of whole prompts"
    return Attempt(played, msgspec.structs.replace(finding, verdict=Verdict.ORACLE, what=what))


def _cut(schedule: Schedule) -> bool:
    """Whether a prompt is prefilled in pieces; the pieces exclude its last token."""
    size = schedule.options.prefill_step_size
    plain = schedule.options.kv is None
    return plain and any(len(request.prompt) - 1 > size for request in schedule.requests)


def _finding(schedule: Schedule, error: Exception) -> Finding:
    failure = failure_of(error, "decoding one request in a single stream")
    quantized = schedule.options.kv is not None
    what = "quantized caches of one row" if quantized else "the single stream"
    return Finding(
        Verdict.UNSUPPORTED if failure.unsupported else Verdict.CRASH,
        "failure",
        f"{what} raised {failure}",
        schedule=schedule.name,
        expected="no exception",
        got=f"{failure.type_name}: {failure.message}",
        cause="the library's model cannot use these caches, in a batch or in a single stream"
        if quantized
        else "the library fails before any batch is made",
    )


# A request with more tokens was in its slot between two steps.
_DECODES = 2


def undeclared(played: Play, engine: type[Engine]) -> list[Finding]:
    """Findings against ``Engine.prefix_reuse`` and ``Engine.slots``."""
    return [*_reuses(played, engine), *_slots(played, engine)]


def _slots(played: Play, engine: type[Engine]) -> list[Finding]:
    """A finding for each request that was in no slot, in another's, or in several."""
    return [
        Finding(
            Verdict.PROTOCOL,
            "protocol",
            what,
            schedule=played.schedule.name,
            mode=trace.mode,
            request_id=name or None,
            expected=f"each request keeps one of the {engine.slots} slots to its end",
            got=what,
            cause="the engine's declaration `slots` does not fit what it does",
        )
        for trace in (played.traces if engine.slots else ())
        for name, what in _misplaced(trace, engine.slots)
    ]


def _misplaced(trace: Trace, slots: int) -> Iterator[tuple[str, str]]:
    """The first wrong slot of each request, in words; no name if none of the slots is known."""
    events = Counter(event.request_id for step in trace.steps for event in step.output.events)
    if max(events.values(), default=0) > _DECODES and not any(step.rows for step in trace.steps):
        yield "", f"`rows()` never says which of the {slots} slots a request is in"
    own: dict[str, int] = {}
    said: set[str] = set()
    for step in trace.steps:
        for name, slot in step.rows.items():
            if name in said:
                continue
            others = [other for other, there in step.rows.items() if there == slot]
            kept = own.setdefault(name, slot)
            if not 0 <= slot < slots:
                what = f"{name} is in slot {slot}, of {slots}"
            elif kept != slot:
                what = f"{name} was in slot {kept} and is in slot {slot}"
            elif len(others) > 1:
                what = f"{' and '.join(sorted(others))} are in slot {slot}"
            else:
                continue
            said.add(name)
            yield name, what


def _reuses(played: Play, engine: type[Engine]) -> list[Finding]:
    """A finding for each prefix that was reused against the rules of ``Engine.prefix_reuse``."""
    rules = engine.prefix_reuse
    if rules == PrefixReuse():
        return []
    return [
        Finding(
            Verdict.PROTOCOL,
            "protocol",
            f"reused {count} tokens of the prompt, {why}",
            schedule=played.schedule.name,
            mode=trace.mode,
            request_id=name,
            expected=f"what the engine declares: PrefixReuse({rules})",
            got=f"{count} tokens",
            cause="the engine's declaration `prefix_reuse` does not fit what it does",
        )
        for trace in played.traces
        for name, count, why in _broken(trace, rules)
    ]


def _broken(trace: Trace, rules: PrefixReuse) -> Iterator[tuple[str, int, str]]:
    """Each reuse against the rules: the request, the number of tokens, the rule."""
    block = rules.block_size or block_size(trace.schedule)
    ended: list[tuple[int, ...]] = []
    for step in trace.steps:
        ended += [_sequence(trace, name) for name in step.removed_from]
        for name, count in step.output.reused.items():
            prompt = trace.schedule.request(name).prompt
            kept = max((common(prompt, sequence) for sequence in ended), default=0)
            if 0 < count < rules.smallest:
                yield name, count, f"fewer than the smallest that it declares, {rules.smallest}"
            elif rules.block_size and count % block:
                yield name, count, f"no whole blocks of {block}"
            elif rules.on_completion and count > kept:
                yield name, count, f"of which requests that had ended hold {kept}"
        events = step.output.events
        ended += [_sequence(trace, e.request_id) for e in events if e.finish_reason]


def _sequence(trace: Trace, name: str) -> tuple[int, ...]:
    """The prompt and the output of a request."""
    return trace.schedule.request(name).prompt + trace.stream(name).tokens
