"""Reruns a case with its known defects mended: then it must be right.

This shows defects behind known ones, and confirms the diagnosis of the known ones.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from conformance.checks.expectations.entries import Defect, matches
from conformance.checks.expectations.lock import Locked
from conformance.checks.expectations.rules import APART
from conformance.checks.expectations.same_code import as_diagnosed
from conformance.core.engine import Capability
from conformance.core.errors import Unsupported
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import together
from conformance.core.mends import Mend
from conformance.core.missing_names import missing_name
from conformance.core.schedule import Arrival, Request, Schedule
from conformance.core.verdict import CaseId, CaseResult, Finding, MendedResult, Verdict
from conformance.run.judging.judge import worst
from conformance.run.judging.witnessed import WITNESS
from conformance.run.session import Session
from conformance.scenarios import Brief
from conformance.scenarios.workloads import is_workload

CHECK = "mends"
"""The check name of the finding that a mend had no effect."""
_PLAYS, _FEWEST = 8, 3
"""How often a server is asked until the requests that show its engine's defect share a batch.

And how often at least: a race that failed once must not go by as that defect.
"""


@dataclass(frozen=True)
class _Plan:
    """A plan: the defects to mend, the schedules to rerun, and the defects without a mend.

    ``shown`` are the defects of these schedules; the mends of ``seen`` must have an effect.
    ``over_http`` are an engine's defects, for its server: of their mends one must have an effect,
    and other answers may share a batch then.
    ``instead`` are schedules to run in place of the case's own.
    """

    defects: tuple[str, ...] = ()
    schedules: tuple[str, ...] = ()
    hiding: tuple[str, ...] = ()
    mends: tuple[Mend, ...] = ()
    shown: frozenset[str] = frozenset()
    seen: frozenset[str] = frozenset()
    instead: tuple[Schedule, ...] = ()
    over_http: frozenset[str] = frozenset()

    @property
    def hiding_if_refused(self) -> tuple[str, ...]:
        """Defects that hide what is behind them, if the mended case is refused."""
        return tuple(sorted({*self.hiding, *self.shown}))


class Mending:
    """Reruns cases with mends; keeps what the next case of the same family can use.

    Args:
        session: runs the cases as released, and cases whose mends do not change the single stream.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._mended: tuple[tuple[str, ...], Session, dict[str, Hits]] | None = None
        self._fits: dict[str, str] = {}

    def play(
        self,
        case: CaseId,
        result: CaseResult,
        entries: Sequence[Defect],
        also: Sequence[Defect] = (),
    ) -> CaseResult:
        """``result`` with the result of the case with its defects mended.

        Only failed schedules are rerun, and of these only those for which each entry that claims
        them has a mend: the others would stay hidden.

        Args:
            result: the judged result of the case as released.
            entries: the known defects that it shows.
            also: known defects that may contribute, as their own schedules were left out; those
                with a mend are mended, too.
        """
        plan = self._plan(result, entries, also)
        behind = self._behind_unmended(case, result, (*entries, *also), plan)
        unfit = self._unfit((*entries, *also), result.family)
        evidence = (*result.evidence, *behind, *unfit)
        result = msgspec.structs.replace(
            result, unmended=plan.hiding, mended=None, evidence=evidence
        )
        if not plan.defects:
            return result
        start = time.perf_counter()
        findings = self._played(case, plan)
        if worst(findings) is Verdict.UNSUPPORTED and (
            left := _without_refused(plan, result, entries)
        ):
            plan, findings = left, self._findings(case, left)
        if worst(findings).good and is_workload(result.scenario):
            # A race may be right again, and what ends its process would end this one.
            once = any(entry.by_time or entry.ends_process for entry in (*entries, *also))
            findings = (*findings, *(() if once else self._not_again(case, plan.schedules)))
        defects, schedules = plan.defects, plan.schedules
        marked = [msgspec.structs.replace(f, mended=", ".join(defects)) for f in findings]
        if worst(findings) is Verdict.UNSUPPORTED:
            refusals = (f for f in marked if f.verdict is Verdict.UNSUPPORTED)
            return msgspec.structs.replace(
                result,
                unmended=plan.hiding_if_refused,
                evidence=(*result.evidence, next(refusals)),
            )
        return msgspec.structs.replace(
            result,
            unmended=plan.hiding,
            evidence=(*result.evidence, *(f for f in marked if not f.verdict.good)),
            mended=MendedResult(
                worst(findings), defects, schedules, round(time.perf_counter() - start, 4)
            ),
        )

    def _played(self, case: CaseId, plan: _Plan) -> tuple[Finding, ...]:
        """The findings of the mended case.

        Over HTTP those of the first play that is wrong; if none is, and a mend has had an effect,
        of one in which it had.
        """
        least, most = (_FEWEST, _PLAYS) if plan.over_http else (1, 1)
        right: tuple[Finding, ...] | None = None
        findings: tuple[Finding, ...] = ()
        for number in range(1, most + 1):
            findings = self._findings(case, plan)
            if any(not f.verdict.good for f in findings if f.check != CHECK):
                return findings
            if not any(finding.check == CHECK for finding in findings):
                right = findings
            if right is not None and number >= least:
                break
        return findings if right is None else right

    def _not_again(self, case: CaseId, schedules: Sequence[str]) -> Iterator[Finding]:
        """A finding for each schedule that failed as released, and does not when it is run again.

        Any known defect may show in a workload. What happens once, such as a race, would be taken
        for one of them, as it does not happen with the mends.
        """
        for again in self._session.run(case, only=tuple(schedules)).schedules:
            if again.verdict.good:
                yield Finding(
                    Verdict.UNSTABLE,
                    CHECK,
                    "the schedule failed, and is right when it is run again as released",
                    schedule=again.name,
                    expected="known defects show each time",
                    got=f"{again.verdict}",
                    cause="a race, or state that lives on: what failed is no known defect",
                )

    def _behind_unmended(
        self, case: CaseId, result: CaseResult, entries: Sequence[Defect], plan: _Plan
    ) -> tuple[Finding, ...]:
        """What is wrong behind entries without a mend that no request shows alone.

        All other entries are mended.
        """
        apart = [entry for entry in entries if entry.id in plan.hiding and entry.right_alone]
        bad = [s.name for s in result.schedules if not s.verdict.good]
        hidden = [n for n in bad if any(e.claims(result.scenario, n) for e in apart)]
        if not hidden:
            return ()
        mends = _unique(m for entry in entries for m in self.mends_for(entry, result.family))
        with together(*(mend.repair(Hits()) for mend in mends)):
            return behind_unmended(self._session, case, hidden)

    def alone(self, case: CaseId, entries: Sequence[Defect]) -> CaseResult | None:
        """The case run only with these entries' defects mended, all schedules of the tier.

        ``None`` if an entry about the scenario has no mend, or if it is not right then: it must be
        run as released, too.
        """
        plan = self._plan_alone(case, entries)
        if plan is None:
            return None
        start = time.perf_counter()
        found, findings = self._run(case, plan)
        schedules = found.schedules
        if not (worst(findings).good and all(s.verdict.good for s in schedules)):
            return None
        verdict, seconds = worst(findings), round(time.perf_counter() - start, 4)
        names = tuple(schedule.name for schedule in schedules)
        mended = MendedResult(verdict, plan.defects, names, seconds, alone=True)
        return msgspec.structs.replace(
            found, verdict=verdict, expected=True, evidence=findings, mended=mended
        )

    def verdict_of(self, line: Locked, known: Mapping[str, Defect]) -> Verdict:
        """The verdict of a line's schedule: the line's own if it still shows the entry.

        An entry whose cases may be unstable still shows with any of its verdicts.
        If it fails with that verdict with the entry mended, too, something else is wrong with it:
        ``vacuous``.

        Args:
            known: the entries that the line names, by id. Where functions changed, none is mended.
        """
        case = CaseId.parse(line.case)
        own = self.mends_for(known[line.entry], case.family)
        others = [m for name in line.beside for m in self.mends_for(known[name], case.family)]
        beside = [mend for mend in others if mend not in own]  # what hides the entry mends it, too
        found = worst(self.small(case, line.schedule, beside))
        wanted = known[line.entry].wanted(case.scenario)
        if Verdict.UNSTABLE in wanted and found in wanted:
            found = line.verdict  # stray memory: each run may show it otherwise
        if found is not line.verdict or not own:
            return found
        return (
            found
            if worst(self.small(case, line.schedule, (*beside, *own))).good
            else Verdict.VACUOUS
        )

    def holds_alone(self, result: CaseResult, entries: Sequence[Defect]) -> bool:
        """Whether an earlier result has what ``alone`` would give now."""
        plan = self._plan_alone(CaseId.parse(result.case), entries)
        return (
            plan is not None and result.mended is not None and plan.defects == result.mended.defects
        )

    def _plan_alone(self, case: CaseId, entries: Sequence[Defect]) -> _Plan | None:
        family, scenario = case.family, case.scenario
        mends = {entry.id: self.mends_for(entry, family) for entry in entries}
        if any(entry.shows_in(scenario) and not mends[entry.id] for entry in entries):
            return None
        named = (name for entry in entries for name in (entry.id, *entry.hides(family)))
        chosen = _unique(mend for found in mends.values() for mend in found)
        return _Plan(tuple(dict.fromkeys(named)), mends=chosen) if chosen else None

    def holds(
        self, result: CaseResult, entries: Sequence[Defect], also: Sequence[Defect] = ()
    ) -> bool:
        """Whether an earlier result already has what ``play`` would add now."""
        plan = self._plan(result, entries, also)
        if result.mended is None and plan.defects:
            return result.unmended == plan.hiding_if_refused
        defects = result.mended.defects if result.mended else ()
        left = _without_refused(plan, result, entries) or plan
        return plan.defects == defects and result.unmended in {plan.hiding, left.hiding}

    def small(
        self, case: CaseId, schedule: Schedule, mends: Sequence[Mend] = ()
    ) -> tuple[Finding, ...]:
        """The findings about one schedule in place of the case's own, as released or mended."""
        return self._run(case, _Plan(mends=tuple(mends), instead=(schedule,)))[1]

    def mend_for(self, entry: Defect, family: str) -> Mend | None:
        """The entry's mend, if the installed functions are the diagnosed ones."""
        return self._whole_mend(entry.id, family) if as_diagnosed(entry) else None

    def _whole_mend(self, defect: str, family: str) -> Mend | None:
        mend = self._session.registry.mend_of(defect)
        if mend is None or matches(family, mend.except_families) or self._misfit(mend):
            return None
        return mend

    def _misfit(self, mend: Mend) -> str:
        """The name of the library that the mend changes and this release lacks; empty if none."""
        if mend.key not in self._fits:
            self._fits[mend.key] = _tried(mend)
        return self._fits[mend.key]

    def _unfit(self, entries: Sequence[Defect], family: str) -> tuple[Finding, ...]:
        """A finding for each name that the mends of these entries change and this release lacks."""
        names = [name for entry in entries for name in (entry.id, *entry.hides(family))]
        lacks = dict.fromkeys(self._fits.get(m.key, "") for m in self._made_for(names))
        return tuple(Finding(Verdict.EXACT, CHECK, why) for why in lacks if why)

    def _made_for(self, defects: Iterable[str]) -> list[Mend]:
        found = map(self._session.registry.mend_of, defects)
        return [mend for mend in found if mend is not None]

    def _plan(self, result: CaseResult, entries: Sequence[Defect], also: Sequence[Defect]) -> _Plan:
        loose = any(entry.anyhow_in(result.scenario) for entry in entries)
        loose = loose or is_workload(result.scenario)
        known = result.expected or result.mended or loose
        failed_as_known = not result.verdict.good and known
        if not failed_as_known:
            return _Plan()
        family = result.family
        mends = {entry.id: self.mends_for(entry, family) for entry in entries}
        if loose:  # it need not show an unnamed one without a mend
            scenario = result.scenario
            entries = [e for e in entries if mends[e.id] or scenario in e.verdicts]
        lacking = {entry.id for entry in entries if not mends[entry.id]}
        schedules, hiding = _split(result, entries, lacking)
        used = [entry for entry in entries if entry.id not in lacking]
        shown = {entry.id for entry in used if _claims_any(entry, result, schedules)}
        unknown = not result.schedules and lacking  # the hidden schedule is unknown
        if not shown or unknown or (result.schedules and not schedules):
            return _Plan(hiding=hiding)
        more = {entry.id: found for entry in also if (found := self.mends_for(entry, family))}
        used += [entry for entry in also if entry.id in more]
        chosen = _unique(mend for entry in used for mend in (mends | more)[entry.id])
        # If schedules were left out, a mend's effect may be in those; a workload need not show all.
        partly = result.left_out or loose
        seen = frozenset(() if partly else shown)
        named = (name for entry in used for name in (entry.id, *entry.hides(family)))
        mended = dict.fromkeys(named)
        return _Plan(
            tuple(mended),
            schedules,
            hiding,
            chosen,
            frozenset(shown),
            seen,
            over_http=frozenset(e.id for e in used if e.over_http(result.engine)),
        )

    def mends_of(
        self, result: CaseResult, entries: Sequence[Defect], also: Sequence[Defect] = ()
    ) -> tuple[Mend, ...]:
        """The mends with which ``play`` reruns the case; none if it does not."""
        return self._plan(result, entries, also).mends

    def mends_for(self, entry: Defect, family: str) -> list[Mend]:
        """The entry's mend and the mends of entries it hides there; none if any is missing."""
        hidden = [self._whole_mend(name, family) for name in entry.hides(family)]
        found = [mend for mend in (self.mend_for(entry, family), *hidden) if mend is not None]
        return found if len(found) == 1 + len(hidden) else []

    def _findings(self, case: CaseId, plan: _Plan) -> tuple[Finding, ...]:
        return self._run(case, plan)[1]

    def _run(self, case: CaseId, plan: _Plan) -> tuple[CaseResult, tuple[Finding, ...]]:
        """The case with the mends, and its findings; mends of its own must have an effect."""
        mends, schedules = plan.mends, plan.schedules
        made_anew = any(mend.single_stream for mend in mends)
        session, kept = self._mended_session(case, mends) if made_anew else (self._session, {})
        hits = {mend.key: kept.get(mend.key, Hits()) for mend in mends}
        injected = self._session.registry.engines[case.engine].injected

        @contextlib.contextmanager
        def repaired(_: str = "") -> Iterator[None]:
            with together(*(injected(mend.repair)(hits[mend.key]) for mend in mends)):
                yield

        if made_anew:
            with repaired():
                found = session.run(case, only=schedules, instead=plan.instead)
        else:
            found = session.run(case, around=repaired, only=schedules, instead=plan.instead)
        idle = [m for m in mends if plan.seen.intersection(m.defects) and not hits[m.key].count]
        over_http = [m for m in mends if plan.over_http.intersection(m.defects)]
        if not any(hits[m.key].count for m in over_http):
            idle += over_http[:1]
        seen = found.evidence
        if found.verdict is Verdict.UNSUPPORTED:
            return found, seen  # refused as a whole, it never reaches the code of a defect
        if plan.over_http or any(mend.other_pieces for mend in mends):
            seen = tuple(finding for finding in seen if finding.check != WITNESS)
        return found, (*seen, *map(_without_effect, idle))

    def _mended_session(
        self, case: CaseId, mends: Sequence[Mend]
    ) -> tuple[Session, dict[str, Hits]]:
        """A session whose single streams are made with these mends; only the last one is kept.

        Includes the hits of mends in the single stream, since streams from an earlier case with the
        same mends are not made again.
        """
        session = self._session
        library = session.registry.engines[case.engine].library
        key = (library, case.family, case.dtype, str(case.seed), *(mend.key for mend in mends))
        if self._mended is None or self._mended[0] != key:
            hits = {mend.key: Hits() for mend in mends if mend.single_stream}
            self._mended = key, Session(session.registry, tier=session.tier), hits
        return self._mended[1:]


def _tried(mend: Mend) -> str:
    """Put the mend in and take it out: the name of the library that it misses; empty if none."""
    try:
        with mend.repair(Hits()):
            return ""
    except Exception as error:
        if (missing := missing_name(error)) is not None:
            return str(missing)
        if isinstance(error, Unsupported):
            return str(error)
        raise


def _split(
    result: CaseResult, entries: Sequence[Defect], lacking: set[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The failed schedules that can be mended, and the entries that hide the others."""
    bad = [s.name for s in result.schedules if not s.verdict.good]
    bad = [name for name in bad if _verdict(result, name) is not Verdict.UNSUPPORTED]
    seen, hiding = [], set()
    for name in bad:
        claiming = {entry.id for entry in entries if entry.claims(result.scenario, name)}
        if claiming & lacking:
            hiding |= claiming & lacking
        else:
            seen.append(name)
    if not bad:
        hiding = lacking
    return tuple(seen), tuple(sorted(hiding))


def _without_refused(plan: _Plan, result: CaseResult, entries: Sequence[Defect]) -> _Plan | None:
    """The plan without schedules that are refused as released; ``None`` if none are left."""
    refused = _refused(result)
    left = tuple(name for name in plan.schedules if name not in refused)
    if not left:
        return None
    claiming = {entry.id for entry in entries if _claims_any(entry, result, left)}
    hiding = tuple(sorted({*plan.hiding, *(plan.shown - claiming)}))
    shown = plan.shown & claiming
    return replace(plan, schedules=left, hiding=hiding, shown=shown, seen=frozenset())


def _refused(result: CaseResult) -> set[str]:
    """The schedules that the library refuses as released, possibly in addition to a defect."""
    found = (f for f in result.evidence if f.verdict is Verdict.UNSUPPORTED and not f.mended)
    return {finding.schedule for finding in found}


def _verdict(result: CaseResult, schedule: str) -> Verdict:
    return next(s.verdict for s in result.schedules if s.name == schedule)


def _claims_any(entry: Defect, result: CaseResult, schedules: Sequence[str]) -> bool:
    """Whether the entry is about any of the schedules; about the case if none was run."""
    return not result.schedules or any(entry.claims(result.scenario, s) for s in schedules)


def _unique(mends: Iterable[Mend]) -> tuple[Mend, ...]:
    return tuple({mend.key: mend for mend in mends}.values())


def _without_effect(mend: Mend) -> Finding:
    """The finding about a mend that repaired nothing: its defect is not the one that was seen."""
    return Finding(
        Verdict.VACUOUS,
        CHECK,
        f"the mend {mend.name} of {', '.join(mend.defects)} never had an effect",
        expected="the code of the defect runs",
        got="it did not run, or does nothing else when it is mended",
        cause="the entry's place is not what the case shows, or the mend misses it",
    )


# Behind a known defect without a mend: its requests, each alone on a model loaded anew ----------


def behind_unmended(session: Session, case: CaseId, hidden: Collection[str]) -> tuple[Finding, ...]:
    """What is wrong with the requests of these schedules, each alone on a model loaded anew.

    A request that continues another one cannot be alone, nor can one of a server, or of a schedule
    that weighs or counts: the number is that of the schedule.
    """
    registry = session.registry
    scenario, engine = registry.scenarios[case.scenario], registry.engines[case.engine]
    if scenario.oracle_only or Capability.SERVED in engine.capabilities:
        return ()
    made = (schedule for schedule in session.schedules(case) if schedule.name in hidden)
    alone = dict.fromkeys(single for schedule in made for single in _alone(schedule))
    found: list[Finding] = []
    for schedule in alone:
        single = dataclasses.replace(scenario, make=_only(schedule), witnesses=())
        scenarios = {**registry.scenarios, scenario.name: single}
        anew = Session(dataclasses.replace(registry, scenarios=scenarios))
        found += (f for f in anew.run(case).evidence if not f.verdict.good)
    wrong = (f for f in found if f.verdict not in (Verdict.UNSUPPORTED, Verdict.VACUOUS))
    return tuple(msgspec.structs.replace(finding, mended=APART) for finding in wrong)


def _only(schedule: Schedule) -> Callable[[Brief], Sequence[Schedule]]:
    return lambda _: [schedule]


def _alone(schedule: Schedule) -> Iterator[Schedule]:
    """A schedule for each request: it arrives at once, and nothing else happens."""
    if schedule.weigh is not None or schedule.contracts:
        return
    for request in schedule.requests:
        if request.continues is None:
            yield Schedule("alone", (Arrival((_unnamed(request),)),), options=schedule.options)


def _unnamed(request: Request) -> Request:
    """Equal requests of several schedules are run once."""
    return msgspec.structs.replace(request, request_id="alone")
