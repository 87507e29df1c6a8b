"""Failures as annotations of a GitHub run: a step shows at most ten, one for each finding.

Source: GitHub's workflow commands; the escapes are those of the official toolkit's ``command.ts``.
"""

from __future__ import annotations

from collections.abc import Sequence

from conformance.report.cascades import Cascade
from conformance.report.markdown import one_line
from conformance.report.message import defect_commands, new_verdict, rerun_command
from conformance.report.outcome import listed

# Considered instead: pytest-github-actions-annotate-failures, which makes one annotation for each
# failing test, of which GitHub hides all but ten; the official toolkit is JavaScript.
MOST = 10
"""The most errors that GitHub shows for one step."""

_NAMED = 20  # cases or families named after "n more"
_CHARACTERS = 400  # of one sentence


def error_annotations(
    found: Sequence[Cascade], problems: Sequence[str] = (), *, most: int = MOST
) -> tuple[str, ...]:
    """At most ``most`` commands ``::error``, one for each finding, in their order.

    Args:
        found: the unexpected cases of a run, grouped by cause.
        problems: sentences about problems outside of cases; they share the last annotation.
        most: the largest number of annotations.
    """
    room = most - bool(problems)
    shown = found if len(found) <= room else found[: room - 1]
    annotations = [_error(cascade.name, _of_cascade(cascade)) for cascade in shown]
    if left := found[len(shown) :]:
        cases = sum(len(cascade.cases) for cascade in left)
        names = list(dict.fromkeys(cascade.name for cascade in left))
        text = f"{listed(names, _NAMED)}: {cases} cases not as expected"
        annotations.append(_error(f"{len(left)} more findings", [text]))
    if problems:
        annotations.append(_error("beside the cases", problems))
    return tuple(annotations)


def _of_cascade(cascade: Cascade) -> list[str]:
    first, *others = cascade.cases
    sentence = one_line(cascade.sentence)[:_CHARACTERS]
    lines = [sentence, f"{new_verdict(first)}: {first.case}", f"rerun: {rerun_command(first)}"]
    lines += [f"known: {command}" for command in defect_commands(first)]
    if others:
        lines.append(f"and {len(others)} more: {listed([r.case for r in others], _NAMED)}")
    return lines


def _error(title: str, lines: Sequence[str]) -> str:
    message = _escaped("\n".join(map(one_line, lines)))
    name = _escaped(one_line(f"conformance {title}")).replace(":", "%3A").replace(",", "%2C")
    return f"::error title={name}::{message}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
