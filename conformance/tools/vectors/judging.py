"""Judges an external engine's trace with the same checks as adapters; pure, without a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.checks import CHECKS, Play
from conformance.core.errors import VectorsError
from conformance.core.grouping import grouped
from conformance.core.verdict import (
    CaseId,
    CaseResult,
    Finding,
    ScheduleResult,
)
from conformance.report.message import failure_message
from conformance.run.judging.judge import Numbers, Outcome, numbers_of, worst, worst_numbers
from conformance.run.judging.picturing import picture_of
from conformance.run.judging.summing import result_of
from conformance.run.judging.witnessed import missed
from conformance.tools.vectors.conversion import play_of
from conformance.tools.vectors.parsing import Run, read_trace
from conformance.tools.vectors.reading import Vectors


@dataclass(frozen=True)
class Judgement:
    """The results of a trace.

    Attributes:
        results: one for each engine, family and scenario, in order of appearance.
        unplayed: schedules of the trace's families that the trace lacks, as
            ``family/scenario/schedule``, and families without any run.
    """

    results: tuple[CaseResult, ...]
    unplayed: tuple[str, ...]


@dataclass(frozen=True)
class _Judged:
    """One run and its findings."""

    run: Run
    play: Play
    findings: tuple[Finding, ...]
    numbers: tuple[Numbers, ...]


def judge_trace(trace: Path, vectors: Path) -> Judgement:
    """The verdicts on a trace.

    All runs of a scenario, forced and free, form one case. A scenario's witnesses are not
    required: a trace does not show the engine's passes.

    Raises:
        VectorsError: trace or vectors are malformed, or do not belong together.
        GoldenError: a golden of the vectors is malformed.
    """
    source = Vectors(vectors)
    cases: dict[CaseId, list[_Judged]] = {}
    runs = read_trace(trace)
    for run in runs:
        case, judged = _judge(run, source)
        cases.setdefault(case, []).append(judged)
    results = tuple(_result(case, found, source) for case, found in cases.items())
    return Judgement(results, tuple(_unplayed(runs, source)))


def result_text(result: CaseResult, *, rerun: str) -> str:
    """The result as text: one line if it is good, otherwise the failure message."""
    if not result.verdict.good:
        return failure_message(result, rerun=rerun)
    ratio = "" if result.ratio is None else f", at most {result.ratio:.2g} times the noise"
    names = ", ".join(schedule.name for schedule in result.schedules)
    return f"{result.verdict}: {result.case} (schedules: {names}{ratio})"


def _unplayed(runs: Sequence[Run], source: Vectors) -> Iterator[str]:
    played = {(r.header.family, r.header.scenario, r.header.schedule) for r in runs}
    families = {family for family, _, _ in played}
    for family, there in source.manifest.families.items():
        if family not in families:
            yield family
            continue
        for scenario in there.scenarios:
            for exported in source.scenario(family, scenario).schedules:
                if (family, scenario, exported.schedule.name) not in played:
                    yield f"{family}/{scenario}/{exported.schedule.name}"


def _judge(run: Run, source: Vectors) -> tuple[CaseId, _Judged]:
    header, manifest = run.header, source.manifest
    if header.dtype != manifest.dtype:
        raise VectorsError(
            f"{run.where}: field 'dtype' is {header.dtype!r}, the vectors are of "
            f"{manifest.dtype}: other dtypes have other noise (`conformance golden export --dtype`)"
        )
    try:
        exported = source.schedule(header.family, header.scenario, header.schedule)
        golden = source.golden(header.family)
    except VectorsError as error:
        raise VectorsError(f"{run.where}: {error}") from error
    vocab = source.family(header.family).vocab_size
    played = play_of(run, exported, golden, vocab)
    findings = [finding for check in CHECKS for finding in check(played)]
    findings += missed(played)
    case = CaseId(header.engine, header.family, header.scenario, header.dtype, manifest.seed)
    return case, _Judged(run, played, tuple(findings), tuple(numbers_of(played)))


def _result(case: CaseId, judged: Sequence[_Judged], source: Vectors) -> CaseResult:
    findings = tuple(finding for one in judged for finding in one.findings)
    outcome = Outcome(
        findings,
        tuple(_schedules(judged)),
        worst_numbers([figures for one in judged for figures in one.numbers]),
        picture_of([one.play for one in judged], findings),
    )
    header = judged[0].run.header
    adds = source.scenario(case.family, case.scenario).summary
    return result_of(case, outcome, adds=adds, versions=header.versions, device=header.device)


def _schedules(judged: Sequence[_Judged]) -> Iterator[ScheduleResult]:
    found = grouped(judged, lambda one: one.run.header.schedule)
    for name, own in found.items():
        yield ScheduleResult(name, worst([finding for one in own for finding in one.findings]))
