"""What a failing workload needs to fail: its schedule is made smaller while it fails alike.

Each step must fail in the same check with the same verdict; if that is not about logprobs, with the
same message, numbers aside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

import msgspec

from conformance.checks import CHECKS
from conformance.core.engine import Engine
from conformance.core.schedule import Schedule
from conformance.core.verdict import CaseId, CaseResult, Finding, Verdict
from conformance.reference.subject import Subject
from conformance.report.message import worst_of
from conformance.run.judging.playing import play_schedule
from conformance.run.session import Session
from conformance.scenarios.features import needed
from conformance.scenarios.smaller_schedules import smallest

CHECK = "needs"
"""The check name of this finding in the evidence of a case; it never changes the verdict."""

SECONDS = 15.0
"""The time limit of the search, in seconds."""

_OF_NUMBERS = frozenset({Verdict.DIVERGED, Verdict.DRIFT, Verdict.NAN, Verdict.UNSTABLE})


def with_needs(
    session: Session,
    case: CaseId,
    result: CaseResult,
    mended: Callable[[Schedule], Iterable[Finding]] | None = None,
) -> CaseResult:
    """A failed workload's result with its smallest schedule and what that needs, in one finding.

    The result is unchanged if the schedule does not fail alike once more.

    Args:
        mended: the findings about a schedule that is run with the known defects of the case mended.
            What is wrong then is made small, if anything is: what fails only as released may be the
            known defects' doing.
    """
    new = [f for f in result.evidence if f.schedule and not (f.verdict.good or f.known)]
    behind = [finding for finding in new if finding.mended]
    worst = worst_of(behind or new)
    if worst is None or (behind and mended is None):
        return result
    engine = session.registry.engines[case.engine]
    subject = session.subject(case)
    made = session.schedules(case)
    failing = next((schedule for schedule in made if schedule.name == worst.schedule), None)

    def fails(candidate: Schedule) -> bool:
        found = mended(candidate) if behind and mended else _findings(subject, engine, candidate)
        return any(alike(one, worst) for one in found)

    if failing is None or not fails(failing):
        return result
    found = smallest(failing, fails, seconds=SECONDS)
    window = session.registry.family_of(case).facts.window
    needs = ", ".join(needed(found.value, window))
    said = Finding(Verdict.EXACT, CHECK, f"needs {needs} ({found.end})", schedule=worst.schedule)
    evidence = (*result.evidence, said)
    return msgspec.structs.replace(result, evidence=evidence, smallest=found.value)


def _findings(subject: Subject, engine: type[Engine], schedule: Schedule) -> Iterator[Finding]:
    """The findings of one run; none if a request cannot be decoded alone."""
    try:
        played = play_schedule(subject, engine, schedule, once=True, enough=lambda _: True)
    except Exception:  # noqa: BLE001 - the library's failure on a single stream is another failure
        return
    for check in CHECKS:
        yield from check(played)


def alike(found: Finding, other: Finding) -> bool:
    """Whether both fail in the same way, though in other schedules."""
    if (found.verdict, found.check) != (other.verdict, other.check):
        return False
    return found.verdict in _OF_NUMBERS or _words(found.what) == _words(other.what)


def _words(text: str) -> str:
    """The text without numbers and names, which hang on the schedule."""
    return re.sub(r"'[^']*'|\bof r\d+\b|[\d.()]+", "", text)
