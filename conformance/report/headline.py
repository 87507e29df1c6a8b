"""The headline for failures with one cause, in one sentence."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from conformance.core.verdict import CaseResult
from conformance.report.explanation import Explanation
from conformance.report.message import broken_rules, worst
from conformance.report.symptoms import beginning, blame

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
    failing = "1 case fails, at" if number == 1 else f"{number} cases fail, first at"
    where = f"`{first.scenario}`" + (f" ({first.family})" if len(families) > 1 else "")
    alone = blame(first).startswith(ODD_ONE_OUT)
    # If the single stream is wrong, the batch's first difference from it means nothing.
    why = _brief(beginning(explanation) if explanation and not alone else _what(first))
    sentences = [f"{who}: {failing} {where}: {why}."]
    if alone:
        sentences.append(f"{ODD_ONE_OUT.capitalize()}.")
    if worst(first) and any(finding.known for result in cases for finding in result.evidence):
        sentences.append("Known defects aside.")
    return " ".join(sentences)


def _lane(first: CaseResult, lanes: Collection[tuple[str, str]]) -> str:
    names = [first.engine] if len({engine for engine, _ in lanes}) > 1 else []
    names += [first.dtype] if len({dtype for _, dtype in lanes}) > 1 else []
    return f" ({', '.join(names)})" if names else ""


def _what(result: CaseResult) -> str:
    finding = worst(result)
    if finding is not None:
        return finding.what
    return "; ".join(broken_rules(result)) or f"the verdict is {result.verdict}, without a finding"


def _brief(text: str) -> str:
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= _CHARACTERS else line[: _CHARACTERS - 3] + "..."
