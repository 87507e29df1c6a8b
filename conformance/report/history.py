"""When each defect was added and fixed: the verdicts of every schedule, release by release.

The state of a schedule in a release is *wrong*, *right* or *unknown* (not supported, nothing
proven, or not run). A defect ends with the first release that is known to be right.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from conformance.core.verdict import CaseResult, Verdict

Run = tuple[str, Sequence[CaseResult]]
"""A release, or whatever else names a run, and its results."""

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
    """One schedule of a case in one release. ``what`` is the text of its first finding."""

    verdict: Verdict
    what: str = ""


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
        """One for each release."""
        return tuple(state_of(outcome.verdict if outcome else None) for outcome in self.outcomes)

    @property
    def changed(self) -> bool:
        """Whether it is known to be wrong in one release and right in another."""
        return {State.WRONG, State.RIGHT} <= set(self.states)

    @property
    def shape(self) -> str:
        """The verdicts as text, for instance ``crash in 0.31.1 to 0.31.2; right from 0.31.3``."""
        return "; ".join(_part(*part) for part in self._parts())

    @property
    def example(self) -> str:
        """The first finding in the last release that is wrong."""
        wrong = [t.what for t in self.outcomes if t and state_of(t.verdict) is State.WRONG]
        return wrong[-1] if wrong else ""

    def _parts(self) -> Iterator[tuple[str, list[str], bool]]:
        """Runs of releases with the same verdict, without those of unknown state.

        Each with whether it is the last run.
        """
        runs: list[tuple[str, list[str]]] = []
        for release, outcome, state in zip(self.releases, self.outcomes, self.states, strict=True):
            if outcome is None or state is State.UNKNOWN:
                continue
            name = str(outcome.verdict) if state is State.WRONG else "right"
            if not runs or runs[-1][0] != name:
                runs.append((name, []))
            runs[-1][1].append(release)
        for index, (name, versions) in enumerate(runs):
            yield name, versions, index == len(runs) - 1


def _part(name: str, versions: list[str], last: bool) -> str:  # noqa: FBT001
    if last:
        return f"{name} from {versions[0]}" if len(versions) > 1 else f"{name} in {versions[0]}"
    between = f" to {versions[-1]}" if len(versions) > 1 else ""
    return f"{name} in {versions[0]}{between}"


def histories(runs: Sequence[Run]) -> tuple[History, ...]:
    """One for each schedule that was run in any of the releases, by case and schedule."""
    releases = tuple(release for release, _ in runs)
    tables = _spread([dict(_schedules(results)) for _, results in runs])
    keys = dict.fromkeys(key for table in tables for key in table)
    return tuple(
        History(*key, releases=releases, outcomes=tuple(table.get(key) for table in tables))
        for key in sorted(keys)
    )


Key = tuple[str, str, str, str]


def _spread(tables: Sequence[dict[Key, Outcome]]) -> list[dict[Key, Outcome]]:
    """A case that failed before any schedule counts for each schedule that other releases played.

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
        worst = max((s.verdict for s in result.schedules), key=_severity, default=None)
        for schedule in result.schedules:
            what = next((f.what for f in result.evidence if f.schedule == schedule.name), "")
            yield _key(result, schedule.name), Outcome(schedule.verdict, what)
        if worst is None or worst.severity < result.verdict.severity:
            what = result.evidence[0].what if result.evidence else ""
            yield _key(result, ""), Outcome(result.verdict, what)


def _severity(verdict: Verdict) -> int:
    return verdict.severity


def _key(result: CaseResult, schedule: str) -> Key:
    return (result.case, result.family, result.scenario, schedule)
