"""When each defect was added and fixed: the verdicts of every schedule, release by release.

The state of a schedule in a release is *wrong*, *right* or *unknown* (not supported, nothing
proven, or not run). A defect ends with the first release that is known to be right.
"""

from __future__ import annotations

import enum
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from conformance.core.verdict import CaseResult, Finding, Verdict, most_severe

Run = tuple[str, Sequence[CaseResult]]
"""The name of a run, such as a release, and its results."""

MENDED = ", known defects mended"
"""Suffix of a schedule's name if the known defects of its release are mended."""

# A failure that stops a run, or concerns no request, is shown by its message; others are shown by
# the wrong requests. A wrong count, a leak or a single stream that fails in pieces stops nothing:
# wrong requests are shown in addition.
_BESIDE = (Verdict.PROTOCOL, Verdict.LEAK, Verdict.ORACLE)
_BY_MESSAGE = (Verdict.CRASH, Verdict.UNSUPPORTED, Verdict.HANG, *_BESIDE)
_LONGEST = 100
_UNKNOWN = (Verdict.UNSUPPORTED, Verdict.VACUOUS, Verdict.POLICY)


class State(enum.StrEnum):
    """The state of a schedule or a case in a release."""

    RIGHT = "right"
    WRONG = "wrong"
    UNKNOWN = "unknown"


def state_of(verdict: Verdict | None) -> State:
    """The state for a verdict; ``None`` if the case was not run."""
    if verdict is None or verdict in _UNKNOWN:
        return State.UNKNOWN
    return State.RIGHT if verdict.good else State.WRONG


@dataclass(frozen=True)
class Outcome:
    """One schedule of a case in one release. ``what`` is the text of its first finding.

    ``signature`` is the same for the same defect: the wrong requests and their first wrong tokens,
    or the message of a failure.
    """

    verdict: Verdict
    what: str = ""
    signature: str = ""


@dataclass(frozen=True)
class History:
    """One schedule of a case over all releases, from the oldest to the newest.

    ``outcomes`` has one entry for each release, ``None`` where it was not run.
    """

    case: str
    family: str
    scenario: str
    schedule: str
    releases: tuple[str, ...]
    outcomes: tuple[Outcome | None, ...]

    @property
    def states(self) -> tuple[State, ...]:
        """The states by release."""
        return tuple(state_of(outcome.verdict if outcome else None) for outcome in self.outcomes)

    @property
    def changed(self) -> bool:
        """Whether it is known to be wrong in one release and right in another."""
        return {State.WRONG, State.RIGHT} <= set(self.states)

    @property
    def differs(self) -> bool:
        """Whether releases differ: in state, or in how they are wrong or refuse."""
        return len({shown for shown in self._seen if shown is not None}) > 1

    @property
    def signatures(self) -> str:
        """As ``shape``, with the signature of wrong releases, and with releases that refuse."""
        return _in_words(zip(self._seen, self.releases, strict=True))

    @property
    def _seen(self) -> tuple[str | None, ...]:
        """What each release shows; ``None`` if nothing was run or proven."""
        return tuple(_shown(outcome) for outcome in self.outcomes)

    @property
    def shape(self) -> str:
        """The verdicts as text, for instance ``crash in 0.31.1 to 0.31.2; right from 0.31.3``."""
        names = (
            None
            if state is State.UNKNOWN or not outcome
            else str(outcome.verdict)
            if state is State.WRONG
            else "right"
            for outcome, state in zip(self.outcomes, self.states, strict=True)
        )
        return _in_words(zip(names, self.releases, strict=True))

    @property
    def example(self) -> str:
        """The first finding in the last release that is wrong."""
        wrong = [t.what for t in self.outcomes if t and state_of(t.verdict) is State.WRONG]
        return wrong[-1] if wrong else ""


def _in_words(shown: Iterable[tuple[str | None, str]]) -> str:
    """What releases show, as text; neighbours that show the same are one part, ``None`` is none."""
    known = [(name, release) for name, release in shown if name is not None]
    runs = [
        (name, [release for _, release in run])
        for name, run in itertools.groupby(known, key=lambda pair: pair[0])
    ]
    return "; ".join(_part(*run, last=run is runs[-1]) for run in runs)


def _part(name: str, versions: list[str], *, last: bool) -> str:
    if last:
        return f"{name} from {versions[0]}" if len(versions) > 1 else f"{name} in {versions[0]}"
    between = f" to {versions[-1]}" if len(versions) > 1 else ""
    return f"{name} in {versions[0]}{between}"


def _shown(outcome: Outcome | None) -> str | None:
    if outcome is None or outcome.verdict in (Verdict.VACUOUS, Verdict.POLICY):
        return None
    if outcome.verdict.good:
        return "right"
    return f"{outcome.verdict} ({outcome.signature})" if outcome.signature else str(outcome.verdict)


def histories(runs: Sequence[Run], *, mended: bool = False) -> tuple[History, ...]:
    """The history of each schedule that any of the releases ran, by case and schedule.

    Args:
        mended: also include schedules rerun with known defects mended.
    """
    releases = tuple(release for release, _ in runs)
    tables = _spread([dict(_schedules(results)) for _, results in runs])
    keys = dict.fromkeys(key for table in tables for key in table)
    # With defects mended, only schedules that differ from the released state add information.
    plain = {key: [table.get(key) for table in tables] for key in keys}
    released = {key: (*key[:-1], key[-1].removesuffix(MENDED)) for key in keys}
    shown = (
        key
        for key in sorted(keys)
        if key == released[key] or (mended and plain[key] != plain.get(released[key]))
    )
    return tuple(History(*key, releases=releases, outcomes=tuple(plain[key])) for key in shown)


Key = tuple[str, str, str, str]


def _spread(tables: Sequence[dict[Key, Outcome]]) -> list[dict[Key, Outcome]]:
    """A case that failed before any schedule counts for each schedule that other releases ran.

    Otherwise a release in which a model cannot decode at all could not be compared with others.
    """
    played: dict[Key, list[Key]] = {}
    for key in dict.fromkeys(key for table in tables for key in table if key[-1]):
        played.setdefault((*key[:-1], ""), []).append(key)
    spread = []
    for table in tables:
        whole = {key for key in table if key in played and not any(k in table for k in played[key])}
        own = {key: outcome for key, outcome in table.items() if key not in whole}
        spread.append(own | {key: table[case] for case in whole for key in played[case]})
    return spread


def _schedules(results: Sequence[CaseResult]) -> Iterator[tuple[Key, Outcome]]:
    """The outcome of each schedule; of the case, if it has none or its verdict is worse."""
    for result in results:
        worst = max((s.verdict for s in result.schedules), key=attrgetter("severity"), default=None)
        for schedule in result.schedules:
            own = [f for f in result.evidence if f.schedule == schedule.name and not f.mended]
            plain = _outcome(schedule.verdict, own, schedule.wrong)
            if not result.mended_alone:
                yield _key(result, schedule.name), plain
            # Behind a known defect; without a known defect, this is the schedule as released.
            behind = _behind(result, schedule.name)
            yield _key(result, f"{schedule.name}{MENDED}"), behind or plain
        if worst is None or worst.severity < result.verdict.severity:
            yield _key(result, ""), _outcome(result.verdict, result.evidence[:1])


def _behind(result: CaseResult, schedule: str) -> Outcome | None:
    """A schedule rerun with the known defects mended, if there is such a rerun."""
    if result.mended is None or schedule not in result.mended.schedules:
        return None
    found = [f for f in result.evidence if f.schedule == schedule and f.mended]
    return _outcome(most_severe(f.verdict for f in found), found)


def _outcome(verdict: Verdict, findings: Sequence[Finding], wrong: Sequence[str] = ()) -> Outcome:
    """The outcome from the findings of one schedule, worst first.

    Args:
        wrong: ``wrong_requests`` of all findings, if ``findings`` are only some of them.
    """
    bad = [finding for finding in findings if finding.verdict is verdict]
    what = findings[0].what if findings else ""
    where = wrong or wrong_requests(verdict, findings)
    if verdict in _BY_MESSAGE:
        says = (f.what if verdict is Verdict.LEAK else f.got or f.what for f in bad)
        return Outcome(verdict, what, ", ".join([_message(next(says, "")), *where]))
    return Outcome(verdict, what, ", ".join(where) or (_message(bad[0].what) if bad else ""))


def wrong_requests(verdict: Verdict, findings: Sequence[Finding]) -> list[str]:
    """The requests by which a schedule with this verdict is recognized; none if its message is.

    A failure that stops nothing is recognized by the wrong requests of all findings, too.
    """
    if verdict in _BY_MESSAGE:
        return _where(findings) if verdict in _BESIDE else []
    return [] if verdict.good else _where([f for f in findings if f.verdict is verdict])


def _where(findings: Sequence[Finding]) -> list[str]:
    """The requests of these findings, each with its first wrong token."""
    return sorted({f"{f.request_id} from token {f.step}" for f in findings if f.request_id})


def _message(text: str) -> str:
    """The beginning of a message without its numbers, which depend on sizes and line numbers."""
    return re.sub(r"\d+", "#", " ".join(text.split()))[:_LONGEST]


def _key(result: CaseResult, schedule: str) -> Key:
    return (result.case, result.family, result.scenario, schedule)
