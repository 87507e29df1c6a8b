"""Finds the smallest schedule that shows a known defect; ``Mending.verdict_of`` plays it.

A schedule shows an entry if it fails as released with a verdict that the entry names, and is right
with the entry's defect mended. If the family has other defects that show there, too, they are
mended in both runs, in which the entry alone makes the difference.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from conformance.checks.expectations import Defect, Expectations
from conformance.checks.expectations.entries import matches
from conformance.checks.expectations.lock import Locked
from conformance.core.engine import Capability, Engine
from conformance.core.family import Family
from conformance.core.mends import Mend
from conformance.core.schedule import Schedule
from conformance.core.verdict import CaseId, Finding
from conformance.run.judging.judge import worst
from conformance.run.mending import Mending
from conformance.run.needs import alike
from conformance.run.registry import Registry
from conformance.run.session import Session
from conformance.run.tiers import COSTLY
from conformance.scenarios.minimizing import End, fewest
from conformance.scenarios.smaller_schedules import size, smallest

SECONDS = 20.0
"""Default limit of one search, in seconds."""


class Missing(enum.StrEnum):
    """Why an entry has no schedule in a family."""

    NO_CASE = "no case of it runs here"
    SERVED = "it shows on a server, whose schedules are not made smaller"
    DEVICE = "it shows on another device"
    ENDS = "it ends the process that runs it"
    NO_MEND = "it has no mend, which would show that nothing else fails"
    BESIDE = "it never shows by itself, only behind mended defects"
    RIGHT = "no schedule tried fails with its verdict"
    OTHER = "mended, the schedules tried still fail"
    REFUSED = "the library refuses the model"


@dataclass(frozen=True)
class Place:
    """One entry in one family: its cases there, on the first engine that has any.

    Attributes:
        reach: in how many families the entry shows on that engine.
    """

    entry: Defect
    family: str
    cases: tuple[CaseId, ...]
    reach: int = 0


@dataclass(frozen=True)
class Search:
    """The outcome of a search.

    Attributes:
        line: what was found; ``None``: nothing, for the reason in ``why``.
        played: how many candidates were run, each up to three times.
    """

    place: Place
    line: Locked | None
    why: Missing | None
    seconds: float
    played: int = 0


def places_of(
    registry: Registry, known: Expectations, entries: Iterable[Defect], families: Sequence[str] = ()
) -> tuple[Place, ...]:
    """Each entry in the families that stand for all that have it, the first family of each first.

    Of these, the entries that most families have come first. The families are the quick ones among
    those that have it; without any, the one with the smallest config.

    Args:
        known: says what the libraries refuse.
        families: globs; the families to take instead.
    """
    found = [tuple(_places(registry, known, entry, families)) for entry in entries]
    longest = max(map(len, found), default=0)
    rounds = ([own[i] for own in found if i < len(own)] for i in range(longest))
    # Then entries of one family in turn, so that its model stays loaded.
    return tuple(
        place
        for one in rounds
        for place in sorted(one, key=lambda p: (-p.reach, p.entry.package, p.family, p.entry.id))
    )


def _places(
    registry: Registry, known: Expectations, entry: Defect, families: Sequence[str]
) -> Iterator[Place]:
    for engine in sorted(registry.engines.values(), key=_usual):
        own = [f for f in registry.families_of(engine) if entry.is_about(engine.name, f.name)]
        if families:
            own = [family for family in own if matches(family.name, families)]
        by_size = sorted(own, key=lambda family: _liking(known, engine.name, family))
        cases = {f.name: _cases(registry, known, entry, engine.name, f.name) for f in own}
        having = [family for family in by_size if cases[family.name]]
        chosen = having if families else [f for f in having if f.facts.quick] or having[:1]
        if chosen:
            yield from (Place(entry, f.name, cases[f.name], len(having)) for f in chosen)
            return
    if not families:
        yield Place(entry, "", ())


def _scenarios(entry: Defect) -> Sequence[str]:
    """The scenarios that show it; if none does with seed 0, those that do with others."""
    return tuple(entry.verdicts) or entry.other_seeds


def _liking(known: Expectations, engine: str, family: Family) -> tuple[bool, int]:
    """Families that refuse all last; then the size of the config."""
    refusing = (refusal for refusal in known.refusals if refusal.is_about(engine, family.name))
    return any("*" in refusal.scenarios for refusal in refusing), len(str(family.config))


def _usual(engine: type[Engine]) -> tuple[bool, bool]:
    """The library's own generator first, servers last."""
    return Capability.SERVED in engine.capabilities, engine.name != engine.library


def _cases(
    registry: Registry, known: Expectations, entry: Defect, engine: str, family: str
) -> tuple[CaseId, ...]:
    """The entry's cases, in the ladder's order; last those that the library may refuse."""
    made = registry.engines[engine]
    facts = registry.families[made.library, family]
    able = {scenario.name for scenario in registry.scenarios_for(made, facts)}
    refusing = [refusal for refusal in known.refusals if refusal.is_about(engine, family)]
    dtype = "float32" if matches("float32", entry.dtypes) else entry.dtypes[0]
    seed = 0 if entry.verdicts else 1
    named = _scenarios(entry)
    names = [name for name in registry.scenarios if name in named and name in able]
    refused = {n for n in names if any(matches(n, refusal.scenarios) for refusal in refusing)}
    ordered = sorted(names, key=refused.__contains__)
    return tuple(CaseId(engine, family, name, dtype, seed) for name in ordered)


def obstacle(registry: Registry, mending: Mending, place: Place) -> Missing | None:
    """Why no search is made; ``None`` if one is."""
    entry = place.entry
    if not _scenarios(entry):
        return Missing.BESIDE
    named = [registry.scenarios[n] for n in _scenarios(entry) if n in registry.scenarios]
    if named and all(scenario.served for scenario in named):
        return Missing.SERVED
    if not place.cases:
        return Missing.NO_CASE
    library = registry.libraries[registry.engines[place.cases[0].engine].library]
    if not library.device().startswith(entry.device):
        return Missing.DEVICE
    if entry.ends_process:
        return Missing.ENDS
    return None if mending.mends_for(entry, place.family) else Missing.NO_MEND


def searched(
    session: Session,
    mending: Mending,
    place: Place,
    others: Sequence[Defect],
    *,
    seconds: float = SECONDS,
) -> Search:
    """Play the entry's cheapest schedules until one shows it, and make that one small.

    Args:
        others: the family's other known defects.
        seconds: limit of the search, except for the schedule that is being run; half of it is for
            finding one.
    """
    begun = time.monotonic()
    if (why := obstacle(session.registry, mending, place)) is not None:
        return Search(place, None, why, 0.0)
    found = _Searching(session, mending, place, tuple(others), begun + seconds)
    line, why = found.run()
    return Search(place, line, why, time.monotonic() - begun, found.played)


class _Searching:
    """One search: which schedules were run, and why they show nothing."""

    def __init__(
        self,
        session: Session,
        mending: Mending,
        place: Place,
        others: Sequence[Defect],
        until: float,
    ) -> None:
        self._session, self._mending, self._place, self._until = session, mending, place, until
        self._own = mending.mends_for(place.entry, place.family)
        self._others = tuple(
            (other.id, mends)
            for other in others
            if (mends := [m for m in mending.mends_for(other, place.family) if m not in self._own])
        )
        self.played = 0

    def run(self) -> tuple[Locked | None, Missing | None]:
        try:
            candidates = self._candidates()
        except Exception:  # noqa: BLE001 - whatever a library raises, it has no schedules
            return None, Missing.REFUSED
        half = (self._until + time.monotonic()) / 2
        failing: list[tuple[CaseId, Schedule]] = []
        for case, schedule in candidates:
            if time.monotonic() > half:
                break
            first = self._fails(case, schedule, ())
            if first is None:
                continue
            failing.append((case, schedule))
            if self._right(case, schedule, ()):
                return self._small(case, schedule, first, ()), None
        for case, schedule in failing if self._others else ():
            if time.monotonic() > self._until:
                break
            first = self._fails(case, schedule, self._others)
            if first is not None and self._right(case, schedule, self._others):
                return self._small(case, schedule, first, self._others), None
        return None, Missing.OTHER if failing else Missing.RIGHT

    def _candidates(self) -> list[tuple[CaseId, Schedule]]:
        """The schedules that the entry's cases name, the cheapest first."""
        entry = self._place.entry
        found = []
        for case in self._place.cases:
            if case.scenario in COSTLY and len(self._place.cases) > 1:
                continue
            made = self._session.schedules(case)
            found += [(case, s) for s in made if entry.claims(case.scenario, s.name)]
        return sorted(found, key=lambda pair: _cost(pair[1]))

    def _fails(self, case: CaseId, schedule: Schedule, beside: _Beside) -> Finding | None:
        """The worst finding with ``beside`` mended, if as released it has the entry's verdict.

        What is mended may have the worse verdict, which the entry then names.
        """
        self.played += 1
        first = self._worst(case, schedule, ())
        if first is None or first.verdict not in self._place.entry.wanted(case.scenario):
            return None
        return self._worst(case, schedule, _mends(beside)) if beside else first

    def _worst(self, case: CaseId, schedule: Schedule, mends: Sequence[Mend]) -> Finding | None:
        """The worst finding; ``None`` if all is right."""
        found = self._mending.small(case, schedule, mends)
        bad = (finding for finding in found if not finding.verdict.good)
        return max(bad, key=lambda finding: finding.verdict.severity, default=None)

    def _right(self, case: CaseId, schedule: Schedule, beside: _Beside) -> bool:
        mends = (*_mends(beside), *self._own)
        return worst(self._mending.small(case, schedule, mends)).good

    def _small(self, case: CaseId, schedule: Schedule, first: Finding, beside: _Beside) -> Locked:
        def fails(candidate: Schedule) -> bool:
            found = self._fails(case, candidate, beside)
            if found is None or found.verdict is not first.verdict or not alike(found, first):
                return False
            return self._right(case, candidate, beside)

        seconds = max(0.0, self._until - time.monotonic())
        if self._session.registry.scenarios[case.scenario].oracle_only:
            seconds = 0.0  # a longer stream of the same prompt is kept, and would be judged
        found = smallest(schedule, fails, seconds=seconds)
        if beside:
            beside = fewest(beside, partial(self._differs, case, found.value))
            worst_left = self._worst(case, found.value, _mends(beside))
            first = first if worst_left is None else worst_left
        return Locked(
            self._place.entry.id,
            str(case),
            first.verdict,
            found.value,
            tuple(sorted(name for name, _ in beside)),
            found.end is End.TIME,
        )

    def _differs(self, case: CaseId, schedule: Schedule, beside: _Beside) -> bool:
        """Whether the entry alone makes the difference with these mended."""
        wrong = self._worst(case, schedule, _mends(beside)) is not None
        return wrong and self._right(case, schedule, beside)


_Beside = Sequence[tuple[str, Sequence[Mend]]]
"""Entries by id, with their mends."""


def _mends(beside: _Beside) -> tuple[Mend, ...]:
    return tuple({mend.key: mend for _, mends in beside for mend in mends}.values())


def _cost(schedule: Schedule) -> tuple[int, tuple[int, ...]]:
    """Tokens to be computed; then its size."""
    tokens = sum(len(r.prompt) + r.max_tokens for r in schedule.requests)
    return tokens, size(schedule)
