"""The summary page of a GitHub job: first changes, then findings, then cases, then totals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.core.verdict import CaseResult
from conformance.report.cascades import Cascade
from conformance.report.comparison import Comparison, comparison_lines
from conformance.report.left_out import behind_known
from conformance.report.markdown import code, limited, one_line, table
from conformance.report.matrix import GLYPHS, Matrix, Row, matrices
from conformance.report.message import defect_commands, new_verdict, rerun_command, worst
from conformance.report.outcome import Outcome, about_machine, count, listed, tallies

MOST_BYTES = 1024 * 1024
"""The most bytes GitHub accepts for one step; a longer summary is not shown at all."""

_MOST_FINDINGS = 50
_MOST_FAILURES = 500
_MOST_PROBLEMS = 50
_CHARACTERS = 300  # of one finding


def job_summary(
    outcome: Outcome, found: Comparison | None = None, *, most_bytes: int = MOST_BYTES
) -> str:
    """Markdown of at most ``most_bytes``; what does not fit is counted at its end.

    outcome: outcome of the run.
    found: the comparison with an older run, if any.
    most_bytes: the bytes left for the step.
    """
    lines = [f"## {_headline(outcome)}", ""]
    if found is not None:
        lines += [*comparison_lines(found), ""]
    lines += _problems((*outcome.problems, *about_machine(outcome.results)))
    lines += [*_findings(outcome.cascades), *_failures(outcome), *_totals(outcome)]
    for matrix in matrices(outcome.results, outcome.scenarios):
        lines += _matrix(matrix)
    lines += ["", *_conditions(outcome.results)]
    return limited(lines, most_bytes)


def _headline(outcome: Outcome) -> str:
    cases = count(len(outcome.results), "case")
    if outcome.ok:
        return f"Conformance: {cases}, all as expected"
    wrong = [f"{len(outcome.unexpected)} of {cases} not as expected"]
    wrong += [count(len(outcome.problems), "other problem")] if outcome.problems else []
    wrong += [f"{count(outcome.missing, 'case')} not run"] if outcome.missing else []
    return f"Conformance: {', '.join(wrong)}"


def _problems(problems: Sequence[str]) -> Iterator[str]:
    if not problems:
        return
    yield from (f"- {code(problem)}" for problem in problems[:_MOST_PROBLEMS])
    if len(problems) > _MOST_PROBLEMS:
        yield f"- and {len(problems) - _MOST_PROBLEMS} more"
    yield ""


def _findings(found: Sequence[Cascade]) -> Iterator[str]:
    if not found:
        return
    yield from (f"### {count(len(found), 'finding')}", "")
    for cascade in found[:_MOST_FINDINGS]:
        sentence = cascade.sentence.replace("`", "")  # all of it is code: names can be anything
        yield f"1. {code(sentence)} Evidence: {code(rerun_command(cascade.first))}"
    if len(found) > _MOST_FINDINGS:
        yield f"1. and {len(found) - _MOST_FINDINGS} more"
    yield ""


def _failures(outcome: Outcome) -> Iterator[str]:
    """The cases of each finding but its first, which is in the list above."""
    others = [
        (number, result)
        for number, cascade in enumerate(outcome.cascades, start=1)
        for result in cascade.cases[int(number <= _MOST_FINDINGS) :]
    ]
    if not others:
        return
    yield from (f"### Other cases of these findings ({len(others)})", "")
    rows = [
        (str(number), code(r.case), str(new_verdict(r)), _what(r))
        for number, r in others[:_MOST_FAILURES]
    ]
    yield from table(("finding", "case", "verdict", "what"), rows)
    if len(others) > _MOST_FAILURES:
        yield from ("", f"and {len(others) - _MOST_FAILURES} more")


def _what(result: CaseResult) -> str:
    finding = worst(result)
    return code(finding.what[:_CHARACTERS]) if finding else ""


def _totals(outcome: Outcome) -> Iterator[str]:
    yield from ("", "### Totals by verdict", "")
    rows = [
        (f"`{GLYPHS[t.verdict]}`", str(t.verdict), str(t.cases), str(t.unexpected or ""))
        for t in tallies(outcome.results)
    ]
    yield from table(("", "verdict", "cases", "not expected"), rows)
    if sentence := behind_known(outcome.results).sentence:
        yield from ("", f"{sentence[:1].upper()}{sentence[1:]}.")


def _matrix(matrix: Matrix) -> Iterator[str]:
    shown = [row for row in matrix.rows if not row.clean and not row.unsupported]
    name = code(f"{matrix.engine} {matrix.dtype}")
    families, scenarios = count(len(matrix.rows), "family"), len(matrix.scenarios)
    yield from ("", f"### {name}: {families} x {count(scenarios, 'scenario')}", "")
    if shown:
        head = ("family", *map(code, matrix.scenarios))
        yield from table(head, [(code(row.family), *_cells(row)) for row in shown])
        yield ""
    clean = sum(row.clean for row in matrix.rows)
    refused = sum(row.unsupported and not row.clean for row in matrix.rows)
    yield f"Exact or tie in every scenario: {count(clean, 'family')}; unsupported: {refused}."


def _cells(row: Row) -> Iterator[str]:
    for cell in row.cells:
        if cell is None:
            yield ""
        else:
            yield f"`{cell.text}`" if cell.expected else f"**`{cell.text}`**"


def _conditions(results: Sequence[CaseResult]) -> Iterator[str]:
    """What the numbers depend on: devices and versions."""
    devices = sorted({r.device for r in results})
    versions = sorted({f"{name} {v}" for r in results for name, v in r.versions.items()})
    if results:
        yield f"On {code(', '.join(devices))}; {code(', '.join(versions))}."


# Failures as annotations of a GitHub run: a step shows at most ten, one for each finding ----------

# Considered instead: pytest-github-actions-annotate-failures, which makes one annotation for each
# failing test, of which GitHub hides all but ten; the official toolkit is JavaScript.
MOST = 10
"""The most errors that GitHub shows for one step."""

_NAMED = 20  # cases or families named after "n more"
_OF_LINE = 400  # of one sentence


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
    sentence = one_line(cascade.sentence)[:_OF_LINE]
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
