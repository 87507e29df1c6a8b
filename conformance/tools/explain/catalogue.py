"""The class of faults that a failure resembles."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase

from conformance.core.faults import Fault
from conformance.core.verdict import Verdict
from conformance.report.explanation import SITED, Relative, Where

# Points for each similarity between a failure and a defect in the catalogue.
_ENTRY = 1.5  # the first differing cache entry is the one that the defect breaks
_FIRST = 2.0  # the scenario is the cheapest one that catches the defect
_OTHER = 1.0  # ... or another one that must catch it
_CRASH = 2.0  # both end in an exception
_MOST = 3
_ANY = re.compile(r"(\w+:)?\*")  # a glob of all places of a kind


def sited(fault: Fault, where: Where | None) -> bool:
    """Whether ``where`` is a place that the defect is known to break."""
    if where is None:
        return False
    return any(fnmatchcase(where.site, glob) for glob in fault.where.split("|") if glob)


def fits(fault: Fault, where: Where | None) -> bool:
    """Whether the defect is known to break this very place, not only one of its kind.

    ``cache:*`` is any field of any cache, ``output:*`` whatever comes out: these fit nothing.
    """
    if where is None:
        return False
    narrow = [glob for glob in fault.where.split("|") if glob and not _ANY.fullmatch(glob)]
    return any(fnmatchcase(where.site, glob) for glob in narrow)


def relatives(
    faults: Iterable[Fault],
    traits: Collection[str],
    *,
    scenario: str,
    verdict: Verdict,
    where: Where,
    entry: Where | None,
) -> tuple[Relative, ...]:
    """The most similar classes, best first, among those possible in a family with these traits."""
    scores: dict[str, float] = {}
    members: dict[str, list[tuple[float, Fault]]] = {}
    for fault in faults:
        if fault.lacks(traits):
            continue
        score = _score(fault, scenario, verdict, where, entry)
        if score > 0:
            members.setdefault(fault.fault_class, []).append((score, fault))
            scores[fault.fault_class] = max(scores.get(fault.fault_class, 0.0), score)
    best = sorted(scores, key=lambda name: (-scores[name], name))[:_MOST]
    found = []
    for name in best:
        near = [fault for score, fault in members[name] if score == scores[name]]
        sources = dict.fromkeys(fault.source for fault in near)
        keys = tuple(fault.key for fault in near)
        fit = any(fits(fault, where) for fault in near)
        found.append(Relative(name, scores[name], keys, tuple(sources), fit))
    return tuple(found)


def _score(
    fault: Fault, scenario: str, verdict: Verdict, where: Where, entry: Where | None
) -> float:
    crashed = verdict is Verdict.CRASH
    if crashed != fault.crash or fault.priced:
        return 0.0
    score = _CRASH if crashed else 0.0
    if sited(fault, where):
        score += SITED  # the failure begins at the defect's place
    elif sited(fault, entry):
        score += _ENTRY
    if fault.scenarios[:1] == (scenario,):
        score += _FIRST
    elif scenario in fault.scenarios:
        score += _OTHER
    return score
