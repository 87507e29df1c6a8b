"""Groups failures with one cause into one finding: over the ladder, and over families.

Each rung has the ingredients of the rungs before it, so a defect shows on its own rung and on most
later ones. The lowest of them gives the headline. All output uses these groups.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from conformance.core.levels import builds_on
from conformance.core.verdict import CaseResult, Finding, Verdict, most_severe
from conformance.report.explanation import Explanation, Where
from conformance.report.message import (
    DIAGNOSIS,
    NEEDS,
    broken_rules,
    changed_defects,
    new_verdict,
    worst,
)

MANY = 5
"""If this many families first fail on one rung in the same way, they have one cause."""

_SHARED_CODE = 2  # the same, if the reference engines acquit the models
_OF_ENTRIES = ("passes", "known", "changed")  # symptoms that concern an entry, not a rung

Explanations = Mapping[str, Explanation]


@dataclass(frozen=True)
class Cascade:
    """The unexpected cases of one cause, on one engine in one dtype.

    Attributes:
        cases: in the order of the ladder.
        families: the families of the cases, in their order.
        verdict: the worst verdict of their new findings.
        explanation: the explanation of the first case, if there is one.
        sentence: the headline.
    """

    engine: str
    dtype: str
    cases: tuple[CaseResult, ...]
    families: tuple[str, ...]
    verdict: Verdict
    explanation: Explanation | None
    sentence: str

    @property
    def first(self) -> CaseResult:
        """The case on the lowest rung."""
        return self.cases[0]

    @property
    def name(self) -> str:
        """Engine and family, or the number of families."""
        one = len(self.families) == 1
        return f"{self.engine}/{self.families[0] if one else f'{len(self.families)} families'}"


def cascades(
    results: Iterable[CaseResult],
    order: Sequence[str] = (),
    explanations: Explanations | None = None,
) -> tuple[Cascade, ...]:
    """The unexpected cases of a run by their causes, the most severe families first.

    Args:
        results: results of a run; expected ones are left out.
        order: order of the ladder; other scenarios come last, by name.
        explanations: by case id, as far as there are any.
    """
    known = explanations or {}
    rank = {name: index for index, name in enumerate(order)}
    every = tuple(results)
    bad = sorted(
        (r for r in every if not r.expected),
        key=lambda r: (rank.get(r.scenario, len(rank)), r.scenario, r.family, r.seed, r.case),
    )
    lanes = {(r.engine, r.dtype) for r in every}
    found: list[Cascade] = []
    for lane in sorted({(r.engine, r.dtype) for r in bad}):
        groups = _joined(_of_families([r for r in bad if (r.engine, r.dtype) == lane], known))
        found += [_cascade(group, bad, known, lanes) for group in groups]
    severity: dict[tuple[str, str], int] = {}
    for one in found:
        for family in one.families:
            name = (one.engine, family)
            severity[name] = max(severity.get(name, 0), one.verdict.severity)
    return tuple(sorted(found, key=lambda one: _place(one, severity, rank)))


def by_case(found: Iterable[Cascade]) -> dict[str, Cascade]:
    """The finding that each case belongs to, by case id."""
    return {result.case: one for one in found for result in one.cases}


@dataclass
class _Group:
    """Cases of one cause, so far; the first is the one on the lowest rung."""

    symptom: Symptom
    cases: list[CaseResult] = field(default_factory=list)
    places: set[str] = field(default_factory=set)
    shared: set[str] = field(default_factory=set)

    @property
    def families(self) -> set[str]:
        return {result.family for result in self.cases}

    def add(self, result: CaseResult, explanation: Explanation | None) -> None:
        self.cases.append(result)
        if explanation is not None:
            self.places |= places(explanation)
            self.shared |= shared_place(explanation)

    def take(self, other: _Group) -> None:
        self.cases += other.cases
        self.places |= other.places
        self.shared |= other.shared


def _of_families(bad: Sequence[CaseResult], known: Explanations) -> list[_Group]:
    """Group each family's failures that begin at one place or have the same symptom."""
    found: dict[str, list[_Group]] = {}
    for result in bad:
        groups = found.setdefault(result.family, [])
        explanation, seen = known.get(result.case), symptom(result)
        at = places(explanation) if explanation is not None else frozenset()
        near = [group for group in groups if group.places & at]
        near += [g for g in groups if _alike_in(g, seen, result) and not (g.places and at)]
        if not near:
            groups.append(_Group(seen))
        (near[0] if near else groups[-1]).add(result, explanation)
    return [group for groups in found.values() for group in groups]


def _alike_in(group: _Group, seen: Symptom, result: CaseResult) -> bool:
    """Whether a case fails like the group and can fail for the same reason."""
    entries = seen.kind in _OF_ENTRIES
    return group.symptom == seen and (
        entries or builds_on(result.scenario, group.cases[0].scenario)
    )


def _joined(groups: Sequence[_Group]) -> list[_Group]:
    """Merge groups of several families whose shared code must be the cause."""
    found: list[_Group] = []
    for group in groups:
        # Model modules are in separate files by name; caches and the engine's output are not.
        common = {place for place in group.shared if not place.startswith("module:")}
        near = next((other for other in found if other.shared & common), None)
        if near is None:
            found.append(group)
        else:
            near.take(group)
    buckets: dict[tuple[str, Symptom, str], list[_Group]] = {}
    for group in found:
        first = group.cases[0]
        rung = "" if group.symptom.kind in _OF_ENTRIES else first.scenario
        buckets.setdefault((rung, group.symptom, blame(first)), []).append(group)
    return [one for (_, seen, who), bucket in buckets.items() for one in _alike(bucket, seen, who)]


def _alike(bucket: Sequence[_Group], seen: Symptom, who: str) -> list[_Group]:
    """Merge groups that first fail on one rung in one way, if there are enough families."""
    shared = seen.kind in _OF_ENTRIES or who.startswith("engine")
    found: list[list[_Group]] = []
    # Failures with an explanation collect failures without one.
    for group in sorted(bucket, key=lambda g: not g.shared):
        near = [o for o in found if not (o[0].shared and group.shared - o[0].shared)]
        if near:
            near[0].append(group)
        else:
            found.append([group])
    joined: list[_Group] = []
    for parts in found:
        enough = len({name for part in parts for name in part.families})
        if enough < (_SHARED_CODE if shared else MANY):
            joined += parts
            continue
        for part in parts[1:]:
            parts[0].take(part)
        joined.append(parts[0])
    return joined


def _cascade(
    group: _Group, bad: Sequence[CaseResult], known: Explanations, lanes: set[tuple[str, str]]
) -> Cascade:
    mine = {result.case for result in group.cases}
    cases = tuple(result for result in bad if result.case in mine)
    first = cases[0]
    explanation = known.get(first.case)
    return Cascade(
        engine=first.engine,
        dtype=first.dtype,
        cases=cases,
        families=tuple(dict.fromkeys(result.family for result in cases)),
        verdict=most_severe(map(new_verdict, cases)),
        explanation=explanation,
        sentence=headline(cases, explanation, lanes=lanes),
    )


def _place(
    one: Cascade, severity: Mapping[tuple[str, str], int], rank: Mapping[str, int]
) -> tuple[bool, int, int, str, str, int, str]:
    """News before known defects whose function changed; the family with the worst verdict first.

    In a family, the lowest rung.
    """
    worst_of = max(severity[one.engine, family] for family in one.families)
    rung = rank.get(one.first.scenario, len(rank))
    several = -len(one.families)
    return (
        bool(changed_defects(one.first)),
        -worst_of,
        several,
        one.engine,
        one.families[0],
        rung,
        one.dtype,
    )


# The headline for failures with one cause, in one sentence ---------------------------------------

ODD_ONE_OUT = "the single stream is the odd one out"
"""Beginning of a diagnosis: all engines agree with each other, but not with the oracle."""

_CHARACTERS = 240  # of the text about the first case


def headline(
    cases: Sequence[CaseResult],
    explanation: Explanation | None,
    *,
    lanes: Collection[tuple[str, str]] = (),
) -> str:
    """What fails, how often, first on which rung, and why, as far as known.

    If a workload was made smaller, it says what that needs, and the rung if one fails, too.

    Args:
        cases: cases with one cause, in the order of the ladder.
        explanation: the explanation of the first case.
        lanes: the engines and dtypes of the run; the headline names them if there are several.
    """
    first, number = cases[0], len(cases)
    families = {result.family for result in cases}
    who = first.family if len(families) == 1 else f"{len(families)} families"
    who += _lane(first, lanes)
    if first.verdict.good:
        passing = "1 case passes" if number == 1 else f"{number} cases pass"
        named = "it" if number == 1 else "them"
        return f"{who}: {passing}, but the expectations name a defect for {named}: {first.known}."
    needs = [(r, f.what) for r in cases for f in r.evidence if f.check == NEEDS]
    failing = "1 case fails" if number == 1 else f"{number} cases fail"
    if not needs:
        failing += f", {'first ' * (number > 1)}at {_at(first, families)}"
    alone = blame(first).startswith(ODD_ONE_OUT)
    # If the single stream is wrong, the batch's first difference from it means nothing.
    known = alone or changed_defects(first)
    why = _brief(beginning(explanation) if explanation and not known else _what(first))
    sentences = [f"{who}: {failing}: {why}."]
    if needs:
        smaller, what = needs[0]
        # The first workload that fails is made smaller; rungs come before all workloads.
        rung = "" if first is smaller else f"; the first rung is {_at(first, families)}"
        sentences.append(f"It {what}, in {_at(smaller, families)}{rung}.")
    if alone:
        sentences.append(f"{ODD_ONE_OUT.capitalize()}.")
    if worst(first) and any(finding.known for result in cases for finding in result.evidence):
        sentences.append("Known defects aside.")
    return " ".join(sentences)


def _at(result: CaseResult, families: Collection[str]) -> str:
    return f"`{result.scenario}`" + (f" ({result.family})" if len(families) > 1 else "")


def _lane(first: CaseResult, lanes: Collection[tuple[str, str]]) -> str:
    names = [first.engine] if len({engine for engine, _ in lanes}) > 1 else []
    names += [first.dtype] if len({dtype for _, dtype in lanes}) > 1 else []
    return f" ({', '.join(names)})" if names else ""


def _what(result: CaseResult) -> str:
    if changed := changed_defects(result):
        return "; ".join(changed)
    finding = worst(result)
    if finding is not None:
        return finding.what
    return "; ".join(broken_rules(result)) or f"the verdict is {result.verdict}, without a finding"


def _brief(text: str) -> str:
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= _CHARACTERS else line[: _CHARACTERS - 3] + "..."


# Symptoms of a failure, so that similar failures can be grouped -----------------------------------

# Whether a wrong number changes a token, or is not finite, depends on weights and prompts. If the
# single stream is wrong, so is everything compared with it.
_NUMBERS = {Verdict.DRIFT, Verdict.DIVERGED, Verdict.NAN, Verdict.ORACLE}
# For these checks the message names the problem; for all others the check's name does.
_BY_MESSAGE = {Verdict.PROTOCOL, Verdict.UNSUPPORTED}
_NOWHERE = "none"  # the site if no place was found
_FRAME = re.compile(r"\[([^\[\]:\s]+\.py):\d+")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|\d+")


class Symptom(NamedTuple):
    """The kind of a failure, and what distinguishes it from others of this kind."""

    kind: str
    mark: str = ""


def symptom(result: CaseResult) -> Symptom:
    """The symptom of a case with an unexpected verdict, from its new findings."""
    if result.verdict.good:
        return Symptom("passes", result.known or "")
    if changed := changed_defects(result):
        return Symptom("changed", "; ".join(changed))
    finding = worst(result)
    if finding is None:
        return Symptom("known", result.known or str(result.verdict))
    if finding.verdict in _NUMBERS:
        return Symptom("numbers")
    if finding.verdict is Verdict.CRASH:
        return Symptom("crash", _raised(finding))
    mark = _QUOTED.sub("#", finding.what) if finding.verdict in _BY_MESSAGE else ""
    return Symptom(finding.verdict.value, f"{finding.check} {mark}")


def _raised(finding: Finding) -> str:
    """The exception's class and the library's file that raised it: texts and lines vary."""
    frame = _FRAME.search(finding.what)
    name = re.match(r"\w+", finding.got)
    known = " ".join(part for part in (frame and frame[1], name and name[0]) if part)
    return f"{finding.check} {known or _QUOTED.sub('#', finding.what)}"


def places(explanation: Explanation) -> frozenset[str]:
    """The failure's place and first cache entry; failures that share one have one cause."""
    found = (explanation.where, explanation.entry)
    return frozenset(_anywhere(where.site) for where in found if where and where.site != _NOWHERE)


def _anywhere(site: str) -> str:
    """A site without its layer number; for a frame, without its line."""
    if site.startswith("crash:"):
        return re.sub(r":\d+$", "", site)
    return re.sub(r"(?<=[.:])\d+(?=[.:]|$)", "#", site)


def shared_place(explanation: Explanation) -> frozenset[str]:
    """The place in words that other model files can share; a module by its last name."""
    site = explanation.where.site
    return frozenset() if site == _NOWHERE else frozenset({_shared(_anywhere(site))})


def _shared(site: str) -> str:
    kind, _, rest = site.partition(":")
    if kind == "module":
        path, _, name = rest.rpartition(":")
        return f"module:{path.rpartition('.')[2]}:{name}"
    if kind == "cache":
        return f"cache:{rest.partition(':')[2]}"
    return site


def blame(result: CaseResult) -> str:
    """The culprit by the reference engines: ``model``, ``engine or cache``; empty if unknown."""
    said = next((f.what for f in result.evidence if f.check == DIAGNOSIS), "")
    who = said.partition(":")[0]
    return "" if who == "undecided" else who


def beginning(explanation: Explanation) -> str:
    """The place of a failure, and the defects it resembles, as the rest of a sentence."""
    where, like = explanation.where, explanation.relatives
    # The place of an exception is where it was raised; defects of every class can raise there.
    if where.site.startswith("crash:") or not like:
        return _begins(where)
    alone = len(like) == 1 or like[0].score > like[1].score
    if like[0].fits and alone:
        return f"{_begins(where)}, like defects of the class {like[0].fault_class!r}"
    return f"{_begins(where)}; no class of defects fits"


def _begins(where: Where) -> str:
    kind, _, rest = where.site.partition(":")
    if kind == "module":
        path, _, name = rest.rpartition(":")
        return f"begins at {path} ({name})"
    if kind == "cache":
        place, name, part = (*rest.split(":"), "", "")[:3]
        return f"begins in cache entry {place} ({name}), its {part}: {where.detail}"
    if kind == "input":
        return f"begins with the {rest} that the model is fed: {where.detail}"
    if kind == "output":
        return f"{rest} are wrong: {where.detail}" if rest == "logprobs" else where.detail
    if kind == "crash":
        return f"raised at {rest}: {where.detail}"
    return "begins at no place that is known"
