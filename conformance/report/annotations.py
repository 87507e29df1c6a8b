"""Failures as annotations of a GitHub run: a step shows at most ten, so cases are grouped.

Source: GitHub's workflow commands; the escapes are those of the official toolkit's ``command.ts``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from conformance.core.verdict import CaseResult
from conformance.report.markdown import one_line
from conformance.report.message import rerun_command, worst

# Considered instead: pytest-github-actions-annotate-failures, which makes one annotation of each
# failing test, of which GitHub hides all but ten; the official toolkit is JavaScript.
MOST = 10
"""The most errors that GitHub shows for one step."""

_NAMED = 20  # cases or families named after "n more"
_CHARACTERS = 400  # of one finding


def error_annotations(
    results: Iterable[CaseResult], problems: Sequence[str] = (), *, most: int = MOST
) -> tuple[str, ...]:
    """At most ``most`` commands ``::error``, one for each family and engine, the worst first.

    Args:
        results: of a run; expected ones are left out.
        problems: sentences about problems that are no cases; they share the last annotation.
        most: the largest number of annotations.
    """
    groups: dict[tuple[str, str], list[CaseResult]] = {}
    for result in sorted(results, key=lambda r: (-r.verdict.severity, r.case)):
        if not result.expected:
            groups.setdefault((result.engine, result.family), []).append(result)
    names = list(groups)
    room = most - bool(problems)
    shown = names if len(names) <= room else names[: room - 1]
    annotations = [_error("/".join(name), _of_group(groups[name])) for name in shown]
    if left := names[len(shown) :]:
        cases = sum(len(groups[name]) for name in left)
        text = f"{_named(['/'.join(name) for name in left])}: {cases} cases not as expected"
        annotations.append(_error(f"{len(left)} more families", [text]))
    if problems:
        annotations.append(_error("beside the cases", problems))
    return tuple(annotations)


def _of_group(found: Sequence[CaseResult]) -> list[str]:
    first, *others = found
    finding = worst(first)
    what = one_line(finding.what)[:_CHARACTERS] if finding else "without a finding"
    lines = [f"{first.verdict}: {first.case}", what, f"rerun: {rerun_command(first.case)}"]
    if others:
        lines.append(f"and {len(others)} more: {_named([r.case for r in others])}")
    return lines


def _named(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _error(title: str, lines: Sequence[str]) -> str:
    message = _escaped("\n".join(map(one_line, lines)))
    name = _escaped(one_line(f"conformance {title}")).replace(":", "%3A").replace(",", "%2C")
    return f"::error title={name}::{message}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
