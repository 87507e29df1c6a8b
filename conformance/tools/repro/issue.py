"""The text of an upstream issue about a known defect: symptom, script, cause, and repair."""

from __future__ import annotations

from dataclasses import dataclass

from conformance.checks.expectations import Defect
from conformance.core.mends import Mend
from conformance.core.verdict import CaseResult

_TITLE = 100  # characters


@dataclass(frozen=True)
class Material:
    """The data an issue is written from.

    Attributes:
        entry: the known defect.
        script: shows it with only mlx and the library; ``said`` is the script's output.
        result: of one of its cases, as released and mended.
        mend: of the entry, if there is one.
    """

    entry: Defect
    script: str
    said: str
    result: CaseResult
    mend: Mend | None


def issue_text(found: Material) -> str:
    """The issue as Markdown, with only measured facts and the entry's own text."""
    entry, result = found.entry, found.result
    versions = ", ".join(f"{name} {text}" for name, text in result.versions.items())
    lines = [
        f"# {_sentence(entry.why)}",
        "",
        f"{versions}; {result.device}.",
        "",
        _seen(result),
        "",
        "```python",
        *found.script.rstrip().splitlines(),
        "```",
        "",
        "It prints:",
        "",
        "```text",
        *found.said.strip().splitlines(),
        "```",
        "",
        f"**Cause** ({_places(entry)}): {' '.join(entry.why.split())}",
        "",
        _effect(found),
    ]
    return "\n".join(lines) + "\n"


def _sentence(text: str) -> str:
    """The first sentence without its full stop; only its first part if the sentence is long."""
    first = " ".join(text.split()).split(". ")[0].rstrip(".")
    return first if len(first) <= _TITLE else first.split("; ")[0].split(": ")[0]


def _seen(result: CaseResult) -> str:
    """The worst finding of the case, with its schedule."""
    bad = [f for f in result.evidence if not f.verdict.good and not f.mended]
    what = f": {bad[0].what}" if bad else ""
    return f"`{result.family}`, {result.scenario.replace('_', ' ')}: {result.verdict}{what}."


def _places(entry: Defect) -> str:
    return ", ".join(f"`{place.strip()}`" for place in entry.at.replace(" and ", ",").split(","))


def _effect(found: Material) -> str:
    result, mend = found.result, found.mend
    if mend is None:
        return "**Mend**: none was tried."
    if result.mended is None or not set(mend.defects) & set(result.mended.defects):
        return f"**Mend**: {mend.summary} It was not tried on this case."
    more = [name for name in result.mended.defects if name not in mend.defects]
    beside = f", beside the mends of {', '.join(more)}," if more else ""
    return f"**Mend**: {mend.summary} With it{beside} the case is {result.mended.verdict}."
