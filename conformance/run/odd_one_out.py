"""Is the single stream itself wrong? The pass without a cache decides.

Agreement of all engines is not enough: a model that treats a batch differently from one row is
wrong in the same way on all of them. The pass without a cache has one row and no state. And equal
rows in one pass have neither padding nor unlike positions: what they get wrong is due to their
number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from conformance.core.schedule import Request, Schedule
from conformance.core.verdict import MOST_FINDINGS, CaseResult, Finding, Verdict
from conformance.reference.subject import Subject
from conformance.report.cascades import ODD_ONE_OUT

_TRIED = 4  # wrong answers of a case; each costs a few passes
_Answers = dict[tuple[str, str | None], Finding]


def odd_one_out(
    subject: Subject,
    schedules: Iterable[Schedule],
    result: CaseResult,
    others: Mapping[str, CaseResult],
) -> str:
    """A sentence if the pass without a cache agrees with the engines, but not the single stream.

    Empty if it does not, or if this is unknown.

    Args:
        subject: the model that was run.
        schedules: the schedules of the case.
        result: the result of the engine under test.
        others: results of the reference engines for the same case.
    """
    played = {n: other for n, other in others.items() if other.verdict is not Verdict.UNSUPPORTED}
    mine = _answers(result.evidence)
    same = [_agree(result, other) for other in played.values()]
    right = [not _answers(other.evidence) for other in played.values()]
    if not played or not mine or not (all(same) or all(right)):
        return ""
    first = _confirmed(subject, {schedule.name: schedule for schedule in schedules}, mine)
    if first is None:
        return ""
    at = f"at output token {first.step} of request {first.request_id!r} of {first.schedule!r}"
    if all(same):
        return (
            f"{ODD_ONE_OUT}: every engine, the reference engines included, gives {first.got} {at}, "
            f"and so does the pass without a cache; the single stream has {first.expected}"
        )
    return (
        f"single stream or its caches: the engine gives {first.got} {at}, and so does the pass "
        f"without a cache; the single stream and {', '.join(played)} have {first.expected}"
    )


def by_number_of_rows(
    subject: Subject, schedules: Iterable[Schedule], findings: Iterable[Finding]
) -> str:
    """A sentence if equal rows in one pass already differ from the single stream; else empty.

    Then what is wrong depends on how many rows share a pass, not on masks or positions of rows
    that are unlike.
    """
    by_name = {schedule.name: schedule for schedule in schedules}
    for finding in list(_answers(findings).values())[:_TRIED]:
        schedule = by_name.get(finding.schedule)
        if schedule is None or finding.step is None:
            continue
        request = _request(schedule, finding)
        if not _plain(request, schedule):
            continue
        width = min(len(schedule.requests), schedule.options.completion_batch_size)
        before = subject.oracle.solo(request, schedule.options, schedule).tokens
        right = before[finding.step]
        with subject.around(schedule.name):
            alone, together = (
                subject.library.equal_rows(subject.model, request, before[: finding.step], rows)
                for rows in (1, width)
            )
        if alone is None or together is None or alone.argmax() != right:
            continue
        wrong = [token for token in together.argmax(-1) if token != right]
        if wrong:
            return (
                f"the number of rows: of {width} equal rows in one pass {len(wrong)} give token "
                f"{wrong[0]} where the row alone gives {finding.expected}"
            )
    return ""


def _confirmed(
    subject: Subject, schedules: Mapping[str, Schedule], answers: _Answers
) -> Finding | None:
    """The first of the answers, if the pass without a cache agrees wherever it can be computed."""
    known = [finding for finding in answers.values() if finding.schedule in schedules]
    asked = [(f, _without_a_cache(subject, schedules[f.schedule], f)) for f in known]
    given = [(finding, token) for finding, token in asked if token is not None]
    agreed = given and all(finding.got == f"token {token}" for finding, token in given)
    return given[0][0] if agreed else None


def _answers(findings: Iterable[Finding]) -> _Answers:
    """For each request of each schedule, the first token that differs from the single stream."""
    found: _Answers = {}
    for finding in findings:
        if finding.check == "free" and finding.verdict is Verdict.DIVERGED:
            found.setdefault((finding.schedule, finding.request_id), finding)
    return found


def _agree(one: CaseResult, other: CaseResult) -> bool:
    """Whether two engines gave the same different tokens, as far as both are recorded."""
    mine, theirs = _answers(one.evidence), _answers(other.evidence)
    both = mine.keys() & theirs.keys()
    cut = max(len(one.evidence), len(other.evidence)) >= MOST_FINDINGS
    if not both or (mine.keys() != theirs.keys() and not cut):
        return False
    return all((mine[k].step, mine[k].got) == (theirs[k].step, theirs[k].got) for k in both)


def _without_a_cache(subject: Subject, schedule: Schedule, finding: Finding) -> int | None:
    """The pass's token at that place; ``None`` if it is not comparable."""
    request = _request(schedule, finding)
    if finding.step is None or not _plain(request, schedule):
        return None
    before = subject.oracle.solo(request, schedule.options, schedule).tokens[: finding.step]
    row = subject.library.stateless(subject.model, request, before)
    return None if row is None else int(np.argmax(row))


def _request(schedule: Schedule, finding: Finding) -> Request:
    return next(r for r in schedule.requests if r.request_id == finding.request_id)


def _plain(request: Request, schedule: Schedule) -> bool:
    """Whether a token is the best one after its history, and nothing else decides."""
    special = request.sampler or request.processors or request.continues or request.budget
    return not (special or schedule.options.kv or schedule.options.max_kv_size)
