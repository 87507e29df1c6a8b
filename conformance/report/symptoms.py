"""Symptoms of a failure, so that similar failures can be grouped.

Every failure has a symptom; a place is known only if ``conformance explain`` found it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from conformance.core.verdict import CaseResult, Finding, Verdict
from conformance.report.explanation import Explanation, Where
from conformance.report.message import DIAGNOSIS, changed_defects, worst

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
        return _place(where)
    alone = len(like) == 1 or like[0].score > like[1].score
    if like[0].fits and alone:
        return f"{_place(where)}, like defects of the class {like[0].fault_class!r}"
    return f"{_place(where)}; no class of defects fits"


def _place(where: Where) -> str:
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
