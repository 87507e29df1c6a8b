"""What a failing workload needs to fail: its schedule is made smaller while it fails alike.

Each step must fail in the same check with the same verdict; if that is not about logprobs, with the
same message, numbers aside.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from conformance.checks import CHECKS
from conformance.core.engine import Engine
from conformance.core.schedule import Schedule, Stage
from conformance.core.verdict import CaseId, CaseResult, Finding, Verdict
from conformance.reference.subject import Subject
from conformance.run.judging.judge import brief_for
from conformance.run.judging.playing import play_schedule
from conformance.run.session import Session
from conformance.scenarios.features import Feature, features_of
from conformance.scenarios.smaller_schedules import smallest

CHECK = "needs"
"""The check name of this finding in the evidence of a case; it never changes the verdict."""

SECONDS = 15.0
"""The time limit of the search, in seconds."""

# In which words a feature is named; the others are named by events, lengths and numbers.
_NAMED = {
    Feature.PIECES: "prefill in pieces",
    Feature.SLOTS: "more requests than slots",
    Feature.SAMPLERS: "samplers",
    Feature.PROCESSORS: "logits processors",
    Feature.STOP: "stop sequences",
    Feature.GRAMMAR: "a grammar",
    Feature.SEGMENTS: "prompts in segments",
    Feature.CONTINUES: "a continued cache",
    Feature.CACHING: "kept prefixes",
    Feature.MEDIA: "media",
    Feature.QUANTIZED: "quantized caches",
    Feature.DRAFTS: "drafts",
    Feature.BOUNDED: "bounded caches",
    Feature.LONG: "more tokens than the window",
    Feature.THREAD: "another thread",
}
_JOINS = {
    Stage.DECODE: "a join while another decodes",
    Stage.PREFILL: "a join while another is in prefill",
    Stage.QUEUED: "an arrival while another waits",
    Stage.FINISHED: "an arrival after another's end",
    Stage.REMOVED: "an arrival after a removal",
}
_LONG, _SEVERAL = 64, 8  # tokens
_OF_NUMBERS = frozenset({Verdict.DIVERGED, Verdict.DRIFT, Verdict.NAN, Verdict.UNSTABLE})


def with_needs(session: Session, case: CaseId, result: CaseResult) -> CaseResult:
    """A failed workload's result with its smallest schedule and what that needs, in one finding.

    The result is unchanged if its new findings are seen only with known defects mended, or if the
    schedule does not fail alike once more.
    """
    new = [f for f in result.evidence if f.schedule and not (f.verdict.good or f.known)]
    worst = max(new, key=lambda finding: finding.verdict.severity, default=None)
    if worst is None or worst.mended:
        return result
    engine = session.registry.engines[case.engine]
    subject = session.subject(case)
    made = session.registry.scenarios[case.scenario].make(brief_for(subject, engine, case.seed))
    failing = next((schedule for schedule in made if schedule.name == worst.schedule), None)

    def fails(candidate: Schedule) -> bool:
        return any(_alike(found, worst) for found in _findings(subject, engine, candidate))

    if failing is None or not fails(failing):
        return result
    found = smallest(failing, fails, seconds=SECONDS)
    window = session.registry.family_of(case).facts.window
    needs = ", ".join(needed(found.value, window))
    said = Finding(Verdict.EXACT, CHECK, f"needs {needs} ({found.end})", schedule=worst.schedule)
    evidence = (*result.evidence, said)
    return msgspec.structs.replace(result, evidence=evidence, smallest=found.value)


def needed(schedule: Schedule, window: int | None = None) -> Iterator[str]:
    """What is left in a schedule that was made small, in words."""
    requests = schedule.requests
    yield f"{len(requests)} requests" if len(requests) > 1 else "1 request"
    if len({len(request.prompt) for request in requests}) > 1:
        yield "prompts of other lengths"
    if (longest := max(len(request.prompt) for request in requests)) > _LONG:
        yield f"a prompt of {longest} tokens"
    if (most := max(request.max_tokens for request in requests)) > _SEVERAL:
        yield f"{most} output tokens"
    later = (arrival.when for arrival in schedule.arrivals[1:])
    yield from dict.fromkeys(_JOINS[when.stage] for when in later)
    yield from dict.fromkeys(f"a removal in {r.when.stage}" for r in schedule.removals)
    have = features_of(schedule, window)
    yield from (text for feature, text in _NAMED.items() if feature in have)


def _findings(subject: Subject, engine: type[Engine], schedule: Schedule) -> Iterator[Finding]:
    """The findings of one run; none if a request cannot be decoded alone."""
    try:
        played = play_schedule(subject, engine, schedule, once=True, enough=lambda _: True)
    except Exception:  # noqa: BLE001 - the library's failure on a single stream is another failure
        return
    for check in CHECKS:
        yield from check(played)


def _alike(found: Finding, other: Finding) -> bool:
    if (found.verdict, found.check) != (other.verdict, other.check):
        return False
    return found.verdict in _OF_NUMBERS or _words(found.what) == _words(other.what)


def _words(text: str) -> str:
    """The text without numbers and names, which hang on the schedule."""
    return re.sub(r"'[^']*'|\bof r\d+\b|[\d.()]+", "", text)
