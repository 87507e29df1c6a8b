"""Applies the entries to one case, and to a whole run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from conformance.checks.expectations.entries import Defect, Refusal, code_of, has, matches
from conformance.checks.expectations.lock import Locked
from conformance.core.excused import excused
from conformance.core.verdict import CaseResult, Finding, Verdict
from conformance.scenarios.workloads import is_workload

CHECK = "expectations"
"""The check name of a broken rule in the evidence of a case."""

CHANGED = "known as"
"""How a finding begins about a defect whose function changed in the code that was run."""

APART = "nothing"
"""In ``mended`` of a finding about a request alone, behind an entry without a mend."""


@dataclass(frozen=True)
class Expectations:
    """All entries of a folder.

    Attributes:
        lock: the entries' own schedules in the installed releases.
    """

    defects: tuple[Defect, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    lock: tuple[Locked, ...] = ()

    def apply(self, result: CaseResult) -> CaseResult:
        """``result`` with ``expected`` and ``known`` set.

        A case that breaks a rule is unexpected, and the rule is added to its evidence. Each finding
        that an entry allows gets its id. Rules that an earlier judgement added are dropped.
        """
        evidence = tuple(found for found in result.evidence if found.check != CHECK)
        result = msgspec.structs.replace(result, evidence=evidence)
        if excused(result.verdict, result.evidence):
            return msgspec.structs.replace(result, expected=True, known=None)
        if result.mended is not None and result.mended.alone:
            names = ", ".join(result.mended.defects)
            return msgspec.structs.replace(result, expected=result.verdict.good, known=names)
        refusal = self._refusal(result)
        entries = self.shown_in(result)
        if not entries:
            expected = result.verdict.good or refusal is not None
            changed = () if expected else self._changed(result)
            return msgspec.structs.replace(
                result,
                expected=expected,
                known=refusal.id if refusal else None,
                evidence=(*_marked(result, (), self._about(result)[1]), *changed),
            )
        names = ", ".join(entry.id for entry in entries)
        problem = _problem(result, entries, refused=self._refused(result)) or self._behind(result)
        if problem:
            # A workload that is wrong with all mended may be wrong for any reason; so may a server
            # that is no better with its engine's defects mended.
            unclear = is_workload(result.scenario)
            entries = tuple(e for e in entries if not unclear and not e.over_http(result.engine))
        evidence = _marked(result, entries, self._about(result)[1])
        if problem:
            rule = Finding(result.verdict, CHECK, f"expectation {problem}")
            evidence = (*evidence, rule, *self._changed(result))
        return msgspec.structs.replace(result, expected=not problem, known=names, evidence=evidence)

    def apply_like(self, result: CaseResult, *, module: str) -> CaseResult:
        """``apply``; known defects of the module's tiny family count for another family, too."""
        own = self.apply(result)
        if own.expected or module == result.family:
            return own
        like = self.apply(msgspec.structs.replace(result, family=module))
        if like.expected:
            return msgspec.structs.replace(like, family=result.family)
        # Known findings of the tiny family are known here, too, but its rules do not apply.
        known = [finding for finding in like.evidence if finding.check != CHECK]
        rules = [finding for finding in own.evidence if finding.check == CHECK]
        return msgspec.structs.replace(own, evidence=(*known, *rules))

    def shown_in(self, result: CaseResult) -> tuple[Defect, ...]:
        """The entries whose defects the case shows, or should show; a refused case shows none.

        A workload shows those with which mended it was played again: it may fail for any reason.
        """
        mended = result.mended.defects if result.mended is not None else ()
        scenario = result.scenario
        found = self._concerning(result)
        return tuple(e for e in found if not e.anyhow_in(scenario) or e.id in mended)

    def _changed(self, result: CaseResult) -> tuple[Finding, ...]:
        """A finding for each defect that the case may show, but whose function is another here."""
        if result.verdict.good:
            return ()
        found = []
        for entry in self._about(result)[0]:
            if entry.changed_in and entry.changed_in == code_of(entry.package, result.versions):
                same = msgspec.structs.replace(entry, unchanged_in=entry.changed_in, changed_in="")
                if same.concerns(result) and result.verdict in same.accepted(result):
                    text = f"{CHANGED} {entry.id}, its function changed here: {entry.at}"
                    found.append(Finding(result.verdict, CHECK, text))
        return tuple(found)

    def _concerning(self, result: CaseResult) -> tuple[Defect, ...]:
        """The entries whose defects the case may show."""
        if self._refusal(result) or excused(result.verdict, result.evidence):
            return ()
        concerned = [e for e in self._about(result)[0] if e.concerns(result)]
        refused = self._refused(result)
        own = [e for e in concerned if not e.over_http(result.engine)]
        entries = _applicable(result, own, refused=refused)
        explained = entries and not _problem(result, entries, refused=refused)
        if not (explained or result.verdict.good):
            entries = _applicable(result, concerned, refused=refused)
        hidden = result.verdict.good and not any(entry.strict(result) for entry in entries)
        return () if hidden else tuple(entries)

    def to_mend(self, result: CaseResult) -> tuple[tuple[Defect, ...], tuple[Defect, ...]]:
        """The entries whose defects the case may show, and ``left_out_of``."""
        return self._concerning(result), self.left_out_of(result)

    def left_out_of(self, result: CaseResult) -> tuple[Defect, ...]:
        """Entries about the case whose schedules were left out; their defects may still matter."""
        found = (e for e in self._about(result)[0] if e.is_about_case(result))
        return tuple(entry for entry in found if not entry.concerns(result))

    def _refusal(self, result: CaseResult) -> Refusal | None:
        return next((r for r in self._about(result)[1] if r.explains(result)), None)

    def _refused(self, result: CaseResult) -> bool:
        return any(r.refused(result) for r in self._about(result)[1])

    def _about(self, result: CaseResult) -> tuple[list[Defect], list[Refusal]]:
        """The entries about the case's family on its engine, looked up once for all its cases."""
        kept: dict[object, tuple[list[Defect], list[Refusal]]]
        kept = self.__dict__.setdefault("_kept", {})
        place = (result.engine, result.family, result.traits)
        if place not in kept:
            kept[place] = (
                [e for e in self.defects if e.is_about(*place)],
                [r for r in self.refusals if r.is_about(result.engine, result.family)],
            )
        return kept[place]

    def _behind(self, result: CaseResult) -> str:
        """What is still wrong with the known defects mended; empty if nothing is.

        A refusal of the library that an entry declares is not wrong.
        """
        mended = result.mended
        alone = [f for f in result.evidence if f.mended == APART]
        if alone:
            return f"{', '.join(result.unmended)}: a request alone is {alone[0].verdict}"
        if mended is None or mended.verdict.good:
            return ""
        left = [f for f in result.evidence if f.mended and not f.verdict.good]
        refusing = [r for r in self._about(result)[1] if r.concerns(result)]
        if left and all(f.verdict is Verdict.UNSUPPORTED and _worded(f, refusing) for f in left):
            return ""
        # All that the family has are mended; those that do not show here are no news.
        here = [
            e.id
            for e in self._about(result)[0]
            if e.id in mended.defects and not e.anyhow_in(result.scenario)
        ]
        names = ", ".join(here)
        of = f"{names}: with that" if names else "with the family's known defects"
        return f"{of} mended the case is {mended.verdict}"

    def stale(self, results: Iterable[CaseResult], *, whole: bool) -> tuple[str, ...]:
        """A sentence for each part of an entry that matched no case of a whole run.

        Only parts that the run could have matched count: engines, dtypes and releases that ran, and
        the device. A run that is not ``whole`` proves nothing.
        """
        ran = tuple(results) if whole else ()
        unmet = [(f"defect {e.id!r}", part) for e in self.defects for part in _unmet(e, ran)]
        unmet += [(f"unsupported {r.id!r}", p) for r in self.refusals for p in _unrefused(r, ran)]
        return tuple(
            f"expectations: {entry}: {part}; correct or remove the entry" for entry, part in unmet
        )


def _marked(
    result: CaseResult, defects: Sequence[Defect], refusals: Sequence[Refusal]
) -> tuple[Finding, ...]:
    """The evidence; each finding that an entry allows has its id in ``known``.

    Args:
        defects: the entries that apply to the case.
        refusals: entries about the family; which of them concern the case is looked up here.
    """
    refusing = [refusal for refusal in refusals if refusal.concerns(result)]

    def known(finding: Finding) -> str:
        if finding.verdict.good or finding.mended:
            return ""
        ids = [entry.id for entry in defects if _allows(entry, result, finding)]
        if finding.verdict is Verdict.UNSUPPORTED:
            ids += [refusal.id for refusal in refusing if refusal.words(finding)]
        return ", ".join(ids)

    return tuple(msgspec.structs.replace(f, known=known(f)) for f in result.evidence)


def _allows(entry: Defect, result: CaseResult, finding: Finding) -> bool:
    """A finding outside of all schedules concerns the case, whose verdict the entry may explain."""
    claimed = not finding.schedule or entry.claims(result.scenario, finding.schedule)
    return claimed and finding.verdict in entry.accepted(result)


def _applicable(result: CaseResult, entries: list[Defect], *, refused: bool) -> list[Defect]:
    """Entries whose defect can have shown.

    If no schedule was run, the entries that explain why; if schedules were refused as declared, the
    entries that claim another schedule.
    """
    scenario = result.scenario
    if refused:
        entries = [e for e in entries if not _all_refused(result, e)]
    whole = [e for e in entries if scenario not in e.schedules]
    fatal = [e for e in whole if result.verdict in e.wanted(scenario)]
    unplayed = result.verdict is Verdict.CRASH and not result.schedules
    return fatal if unplayed and fatal else entries


def _all_refused(result: CaseResult, entry: Defect) -> bool:
    claimed = [s.verdict for s in result.schedules if entry.claims(result.scenario, s.name)]
    return bool(claimed) and set(claimed) == {Verdict.UNSUPPORTED}


def _problem(result: CaseResult, entries: Sequence[Defect], *, refused: bool) -> str:
    """The first rule that the case breaks, with its entry; empty if none.

    Schedules may also be refused, if an entry declares it.
    """
    names = ", ".join(entry.id for entry in entries)
    for entry in entries:
        wanted = entry.wanted(result.scenario)
        shown = _shown(result, entry)
        if entry.strict(result) and shown.isdisjoint(wanted):
            listed = ", ".join(entry.schedules.get(result.scenario, ()))
            where = f" in {listed}" if listed else ""
            got = " and ".join(sorted(shown)) or result.verdict
            return f"{entry.id}: wants {' or '.join(wanted)}{where}, got {got}"
    if not any(result.verdict in entry.accepted(result) for entry in entries):
        wants = ", ".join(sorted({v for e in entries for v in e.wanted(result.scenario)}))
        return f"{names}: wants {wants}, got {result.verdict}"
    for schedule in result.schedules:
        claiming = [e for e in entries if e.claims(result.scenario, schedule.name)]
        declared = refused and schedule.verdict is Verdict.UNSUPPORTED
        if (
            schedule.verdict.good
            or declared
            or any(schedule.verdict in entry.accepted(result) for entry in claiming)
        ):
            continue
        return f"{names}: does not cover schedule {schedule.name!r}, which is {schedule.verdict}"
    for found in result.evidence:
        if found.mended or found.verdict.good or found.verdict is Verdict.UNSUPPORTED:
            continue
        if not any(_allows(entry, result, found) for entry in entries):
            where = f" of schedule {found.schedule!r}" if found.schedule else ""
            return f"{names}: does not cover a finding{where}, which is {found.verdict}"
    return ""


def _worded(finding: Finding, refusals: Iterable[Refusal]) -> bool:
    return any(refusal.words(finding) for refusal in refusals)


def _shown(result: CaseResult, entry: Defect) -> set[Verdict]:
    """The verdicts in which the defect can have shown."""
    claimed = {s.verdict for s in result.schedules if entry.claims(result.scenario, s.name)}
    return claimed if result.scenario in entry.schedules else claimed | {result.verdict}


def _unmet(entry: Defect, ran: Sequence[CaseResult]) -> list[str]:
    """Families, traits, scenarios and schedules that matched no case but could have."""
    could = [
        result
        for result in ran
        if matches(result.engine, entry.engines)
        and matches(result.dtype, entry.dtypes)
        and result.device.startswith(entry.device)
        and entry.active(result.versions)
        and entry.released(result.versions)
        and not entry.anyhow_in(result.scenario)
    ]
    if not could or not entry.verdicts:
        return []
    met = [result for result in could if entry.concerns(result)]
    families, scenarios = {r.family for r in met}, {r.scenario for r in met}
    played = {r.scenario for r in could}  # an engine may be unable to express the others
    parts = [f"family {glob!r}" for glob in entry.families if not _any(families, glob)]
    traits = {result.traits for result in could if result.traits}
    if traits:  # older results had none
        unmet = (t for t in entry.traits if not any(has(found, t) for found in traits))
        parts += [f"trait {trait!r}" for trait in unmet]
    parts += [f"scenario {name!r}" for name in entry.verdicts if name in played - scenarios]
    for scenario, names in entry.schedules.items():
        seen = {s.name for r in met if r.scenario == scenario for s in r.schedules}
        if scenario in scenarios:
            parts += [f"schedule {n!r} of {scenario!r}" for n in names if n not in seen]
    return [f"{part} matches no case" for part in parts]


def _unrefused(refusal: Refusal, ran: Sequence[CaseResult]) -> list[str]:
    """Families without a refused case that could have had one in this run."""
    could = [
        result
        for result in ran
        if matches(result.engine, refusal.engines)
        and matches(result.dtype, refusal.dtypes)
        and result.device.startswith(refusal.device)
    ]
    # A family that can't be run here is not considered.
    refused = {
        r.family
        for r in could
        if refusal.refused(r)
        or excused(r.verdict, r.evidence)
        or any(f.mended and refusal.words(f) for f in r.evidence)
    }
    return [
        f"no case of family {glob!r} was refused with {refusal.text!r}"
        for glob in refusal.families
        if could and not _any(refused, glob)
    ]


def _any(names: Iterable[str], glob: str) -> bool:
    return any(matches(name, (glob,)) for name in names)
