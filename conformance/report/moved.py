"""Whether a known defect shows differently than before: in schedules, requests or numbers.

The verdict alone would hide it: a second defect behind a known one can leave it unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.core.grouping import compared
from conformance.core.verdict import MOST_FINDINGS, CaseResult, Verdict
from conformance.report.outcome import count, listed

# Weights and prompts are fixed, so rounding moves a difference only by its noise.
_NOISES = 4.0
_SHARE = 0.01

# Stray memory has other contents in each run.
_STRAY = {Verdict.UNSTABLE, Verdict.NAN, Verdict.CRASH, Verdict.HANG}


def moved(old: CaseResult, new: CaseResult) -> str:
    """How a case with known defects before and after has changed; empty if it has not."""
    if not (old.known and new.known and old.expected and new.expected):
        return ""
    if new.verdict is Verdict.UNSUPPORTED or old.verdict is not new.verdict:
        return ""
    found = [*_schedules(old, new), *_mended(old, new)]
    if not (_stray(old) or _stray(new)):
        found += [*_requests(old, new)] or [*_numbers(old, new)]
    return "; ".join(found)


def _stray(result: CaseResult) -> bool:
    """Whether stray memory, which differs in each run, decides what a case shows."""
    return result.verdict in _STRAY or any(s.verdict in _STRAY for s in result.schedules)


def _schedules(old: CaseResult, new: CaseResult) -> Iterator[str]:
    before, after = ({s.name: s.verdict for s in one.schedules} for one in (old, new))
    for name, (was, now) in compared(before, after).changed.items():
        if Verdict.UNSTABLE not in (was, now) and not (was.good and now.good):
            yield f"schedule {name}: {was} -> {now}"


def _mended(old: CaseResult, new: CaseResult) -> Iterator[str]:
    if old.mended and new.mended and old.mended.verdict.good > new.mended.verdict.good:
        yield f"mended: {old.mended.verdict} -> {new.mended.verdict}"


def _requests(old: CaseResult, new: CaseResult) -> Iterator[str]:
    """Requests that are wrong in only one of the two; not if findings were left out."""
    if max(len(old.evidence), len(new.evidence)) >= MOST_FINDINGS:
        return
    played = {s.name for s in old.schedules} & {s.name for s in new.schedules}
    found = compared(_wrong(old, played), _wrong(new, played))
    if found.came:
        yield f"also wrong: {_named(sorted(found.came))}"
    if found.went:
        yield f"no longer wrong: {_named(sorted(found.went))}"


def _wrong(result: CaseResult, played: set[str]) -> dict[tuple[str, str], Verdict]:
    return {
        (found.schedule, found.request_id): found.verdict
        for found in result.evidence
        if found.request_id is not None and found.schedule in played and not found.verdict.good
    }


def _named(requests: list[tuple[str, str]]) -> str:
    schedule, request = requests[0]
    more = f" and {len(requests) - 1} more" if len(requests) > 1 else ""
    return f"request {request} of {schedule}{more}"


def _numbers(old: CaseResult, new: CaseResult) -> Iterator[str]:
    """The first wrong step and the size of the difference, if the same schedules were run."""
    if [s.name for s in old.schedules] != [s.name for s in new.schedules]:
        return
    if old.first_bad_step != new.first_bad_step:
        yield f"first bad step {old.first_bad_step} -> {new.first_bad_step}"
    before, after = old.max_abs_diff, new.max_abs_diff
    if before is not None and after is not None:
        noise = max(old.noise or 0.0, new.noise or 0.0)
        if abs(after - before) > max(_NOISES * noise, _SHARE * before):
            yield f"{before:.3g} -> {after:.3g} nats off"


# What a case proved in an earlier run but not in a later one, with the same verdict --------------

_NAMED = 3


def less_covered(before: CaseResult, after: CaseResult) -> str:
    """What is no longer proved, in words; empty if nothing, or if the case failed as a whole."""
    if before.schedules and not after.schedules and not after.verdict.good:
        return ""
    return "; ".join(_less(before, after))


def _less(before: CaseResult, after: CaseResult) -> Iterator[str]:
    played = {schedule.name: schedule for schedule in after.schedules}
    gone = [s.name for s in before.schedules if s.name not in played]
    if gone:
        tier = " (left out by the tier)" if set(gone) <= set(after.left_out) else ""
        yield f"{count(len(gone), 'schedule')} not played{tier}: {listed(gone, _NAMED)}"
    shown = {witness.name for witness in after.witnesses if witness.schedules}
    hidden = [w.name for w in before.witnesses if w.schedules and w.name not in shown]
    if hidden:
        yield f"not shown: {listed(hidden, _NAMED)}"
    uncounted = [
        f"{cost.contract} of {schedule.name}"
        for schedule in before.schedules
        if schedule.name in played
        for cost in schedule.costs
        if cost.contract not in {found.contract for found in played[schedule.name].costs}
    ]
    if uncounted:
        yield f"not counted: {listed(uncounted, _NAMED)}"
    if before.right_once_mended and after.expected and not after.verdict.good:
        if after.mended is None:
            yield "not played with its known defects mended"
        elif hiding := sorted(set(after.unmended) - set(before.unmended)):
            yield f"hidden behind what has no mend: {listed(hiding, _NAMED)}"


# Single streams that differ between releases: changes for requests that are decoded alone --------

# Rounding alone moves the sum over a schedule's tokens by far less.
_TIMES_NOISE = 100
_LEAST_NATS = 1e-3


def moved_streams(old: CaseResult, new: CaseResult) -> str:
    """The schedules whose single streams moved, and by how much; empty if none did.

    The sum of the logprobs of their tokens (nats) is compared; other tokens change it, too. No
    verdict shows such a change, since each release is judged by its own single streams.
    """
    before, after = ({s.name: s.single_logprob for s in one.schedules} for one in (old, new))
    most = max(_LEAST_NATS, *(_TIMES_NOISE * (result.noise or 0.0) for result in (old, new)))
    moved = {
        name: abs(now - was)
        for name, (was, now) in compared(before, after).both.items()
        if was is not None and now is not None and abs(now - was) > most
    }
    if not moved:
        return ""
    names = ", ".join(sorted(moved))
    return f"({names}): single streams moved, by {max(moved.values()):.3g} nats in all"
