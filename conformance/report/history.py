"""When each defect came and went: the verdicts of every schedule, release by release.

A schedule is *wrong*, *right* or *untold* in a release. Untold (not supported, nothing proven,
not run) is neither: a defect goes with the first release that is known to be right.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from conformance.core.verdict import CaseResult, Verdict

Run = tuple[str, Sequence[CaseResult]]
"""A release, or whatever else names a run, and its results."""

_UNTOLD = (Verdict.UNSUPPORTED, Verdict.VACUOUS, Verdict.POLICY)


class State(enum.StrEnum):
    """What a verdict says of a release."""

    RIGHT = "right"
    WRONG = "wrong"
    UNTOLD = "untold"


def state_of(verdict: Verdict | None) -> State:
    """``None`` stands for a release in which the case was not run."""
    if verdict is None or verdict in _UNTOLD:
        return State.UNTOLD
    return State.RIGHT if verdict.good else State.WRONG


@dataclass(frozen=True)
class Told:
    """One schedule of a case in one release. ``what`` is its first finding, in words."""

    verdict: Verdict
    what: str = ""


@dataclass(frozen=True)
class History:
    """One schedule of a case over all releases, from the oldest to the newest.

    ``told`` has one entry for each release, ``None`` where it was not run.
    """

    case: str
    family: str
    scenario: str
    schedule: str
    releases: tuple[str, ...]
    told: tuple[Told | None, ...]

    @property
    def states(self) -> tuple[State, ...]:
        """One for each release."""
        return tuple(state_of(told.verdict if told else None) for told in self.told)

    @property
    def changed(self) -> bool:
        """Whether it is known to be wrong in one release and right in another."""
        return {State.WRONG, State.RIGHT} <= set(self.states)

    @property
    def shape(self) -> str:
        """The verdicts in words, for instance ``crash 0.31.1, 0.31.2; right from 0.31.3``."""
        return "; ".join(_part(*part) for part in self._parts())

    @property
    def example(self) -> str:
        """What was wrong, in the words of the last release that was."""
        wrong = [t.what for t in self.told if t and state_of(t.verdict) is State.WRONG]
        return wrong[-1] if wrong else ""

    def _parts(self) -> Iterator[tuple[str, list[str], bool]]:
        """Runs of releases that were given the same verdict, those that say nothing left out.

        Each with whether it is the last, all of whose later releases are alike.
        """
        runs: list[tuple[str, list[str]]] = []
        for release, told, state in zip(self.releases, self.told, self.states, strict=True):
            if told is None or state is State.UNTOLD:
                continue
            name = str(told.verdict) if state is State.WRONG else "right"
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
        History(*key, releases=releases, told=tuple(table.get(key) for table in tables))
        for key in sorted(keys)
    )


Key = tuple[str, str, str, str]


def _spread(tables: Sequence[dict[Key, Told]]) -> list[dict[Key, Told]]:
    """A case that failed before any schedule says the same of each that other releases played.

    Else a release in which a model cannot even decode alone would have nothing in common with one
    in which it can.
    """
    played: dict[Key, list[Key]] = {}
    for key in dict.fromkeys(key for table in tables for key in table if key[-1]):
        played.setdefault((*key[:-1], ""), []).append(key)
    spread = []
    for table in tables:
        whole = {key for key in table if key in played and not any(k in table for k in played[key])}
        own = {key: told for key, told in table.items() if key not in whole}
        spread.append(own | {key: table[case] for case in whole for key in played[case]})
    return spread


def _schedules(results: Sequence[CaseResult]) -> Iterator[tuple[Key, Told]]:
    """What was said of each schedule; of a case without any, or worse than all, of the case."""
    for result in results:
        worst = max((s.verdict for s in result.schedules), key=_severity, default=None)
        for schedule in result.schedules:
            what = next((f.what for f in result.evidence if f.schedule == schedule.name), "")
            yield _key(result, schedule.name), Told(schedule.verdict, what)
        if worst is None or worst.severity < result.verdict.severity:
            what = result.evidence[0].what if result.evidence else ""
            yield _key(result, ""), Told(result.verdict, what)


def _severity(verdict: Verdict) -> int:
    return verdict.severity


def _key(result: CaseResult, schedule: str) -> Key:
    return (result.case, result.family, result.scenario, schedule)
