"""What a failure looks like, so that failures which look alike can be taken for one.

A symptom is known of every failure; a place only where ``conformance explain`` found it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from conformance.core.verdict import CaseResult, Finding, Verdict
from conformance.report.explanation import SITED, Explanation, Where
from conformance.report.message import DIAGNOSIS, worst

# Whether a wrong number moves a token, or is not finite, is up to weights and prompts. Where the
# single stream is wrong, so is what is compared with it.
_NUMBERS = {Verdict.DRIFT, Verdict.DIVERGED, Verdict.NAN, Verdict.ORACLE}
# Of these the message says what is wrong; of all others the check does.
_BY_MESSAGE = {Verdict.PROTOCOL, Verdict.UNSUPPORTED}
_NOWHERE = "none"  # the site where no place was found
_FRAME = re.compile(r"\[([^\[\]:\s]+\.py):\d+")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|\d+")


class Symptom(NamedTuple):
    """The kind of a failure, and what distinguishes it from others of the kind."""

    kind: str
    mark: str = ""


def symptom(result: CaseResult) -> Symptom:
    """Of a case with an unexpected verdict, by what is new in it."""
    if result.verdict.good:
        return Symptom("passes", result.known or "")
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
    """Where it begins, and its first cache entry: two failures that share one are of one cause."""
    found = (explanation.where, explanation.entry)
    return frozenset(_anywhere(where.site) for where in found if where and where.site != _NOWHERE)


def _anywhere(site: str) -> str:
    """A site in whichever layer; of a frame in whichever line."""
    if site.startswith("crash:"):
        return re.sub(r":\d+$", "", site)
    return re.sub(r"(?<=[.:])\d+(?=[.:]|$)", "#", site)


def shared_place(explanation: Explanation) -> frozenset[str]:
    """Where it begins, in words that other model files can share; a module by its last name."""
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
    """Whom the reference engines accuse: ``model``, ``engine or cache``; empty if not known."""
    said = next((f.what for f in result.evidence if f.check == DIAGNOSIS), "")
    who = said.partition(":")[0]
    return "" if who == "undecided" else who


def beginning(explanation: Explanation) -> str:
    """Where a failure begins, and which defects it resembles, as the rest of a sentence."""
    where, like = explanation.where, explanation.relatives[:1]
    # The place of an exception is what raised it; defects of every class can raise there.
    alike = like and like[0].score >= SITED and not where.site.startswith("crash:")
    return _place(where) + (f", like defects of the class {like[0].fault_class!r}" if alike else "")


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
