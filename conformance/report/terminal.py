"""The end of a run as a person sees it in a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from conformance.report.matrix import GLYPHS, UNEXPECTED, Cell, Matrix, Row, matrices
from conformance.report.message import failure_message
from conformance.report.outcome import Outcome, duration, slowest, tallies
from conformance.verdict import Verdict

FEW_FAMILIES = 20
"""Up to so many rows a matrix shows every family; beyond, only those with something to tell."""

_UNEXPECTED_STYLE = "bold red"
_KNOWN_STYLE = "yellow"
_STYLES = {
    Verdict.EXACT: "green",
    Verdict.TIE: "cyan",
    Verdict.UNSUPPORTED: "bright_black",
}


def summary(
    outcome: Outcome,
    *,
    width: int,
    failures: bool = True,
    durations: int = 5,
    options: Sequence[str] = (),
) -> Text:
    """Failures, slowest cases, problems, matrices, totals and, last, one line that says it all.

    Args:
        outcome: of the run.
        width: columns of the terminal.
        failures: whether to tell each unexpected case; pytest does that in its own way.
        durations: how many of the slowest cases to list.
        options: of the run, which a rerun of one case needs too.
    """
    blocks: list[Text] = []
    if failures:
        blocks += [_failure(failure_message(r, options=options)) for r in outcome.unexpected]
    if durations and outcome.results:
        blocks.append(_slowest(outcome, durations))
    found = matrices(outcome.results, outcome.scenarios)
    blocks += [_matrix(matrix, width) for matrix in found]
    if found:
        blocks.append(_legend(found))
    if outcome.problems:
        blocks.append(Text("\n").join(Text(p, style=_UNEXPECTED_STYLE) for p in outcome.problems))
    if outcome.results:
        blocks.append(_totals(outcome))
    blocks.append(_verdict(outcome))
    return Text("\n\n").join(blocks)


def render(text: Text, *, colour: bool) -> str:
    """``text`` as a string, with ANSI colours or without."""
    buffer = io.StringIO()
    console = Console(
        file=buffer, force_terminal=colour, color_system="standard" if colour else None
    )
    console.print(text, soft_wrap=True, end="")
    return buffer.getvalue()


def style_of(cell: Cell) -> str:
    """The colour of a cell: red where the verdict is not wanted, yellow where a defect is known."""
    return _STYLES.get(cell.verdict, _KNOWN_STYLE) if cell.expected else _UNEXPECTED_STYLE


def _failure(message: str) -> Text:
    head, _, rest = message.partition("\n")
    return Text(head, style=_UNEXPECTED_STYLE).append(f"\n{rest}", style="default not bold")


def _slowest(outcome: Outcome, count: int) -> Text:
    cases = slowest(outcome.results, count)
    lines = [Text(f"slowest {len(cases)} cases (wall time, of which in the model)", style="bold")]
    for result in cases:
        model = duration(result.forward_seconds)
        lines.append(Text(f"  {duration(result.seconds):>10}  {model:>10}  {result.case}"))
    return Text("\n").join(lines)


# The matrix --------------------------------------------------------------------------------------


def _matrix(matrix: Matrix, width: int) -> Text:
    counts = f"{_count(len(matrix.rows), 'family')} x {_count(len(matrix.scenarios), 'scenario')}"
    lines = [Text(f"{matrix.engine} {matrix.dtype}: {counts}", style="bold")]
    shown = _worth_showing(matrix)
    if shown:
        names = max(len(row.family) for row in shown)
        cell = 3 if names + 3 + 3 * len(matrix.scenarios) <= width else 2
        lines += _header(matrix.scenarios, indent=names + 4, cell=cell)
        lines += [_row(row, names, cell) for row in shown]
    lines += [Text(line, style="bright_black") for line in _left_out(matrix, len(shown))]
    return Text("\n").join(lines)


def _worth_showing(matrix: Matrix) -> tuple[Row, ...]:
    if len(matrix.rows) <= FEW_FAMILIES:
        return matrix.rows
    return tuple(row for row in matrix.rows if not row.clean and not row.unsupported)


def _left_out(matrix: Matrix, shown: int) -> Iterator[str]:
    if shown == len(matrix.rows):
        return
    clean = sum(row.clean for row in matrix.rows)
    unsupported = sum(row.unsupported for row in matrix.rows)
    more = "more " if shown else ""
    if clean:
        yield f"  {more}{_count(clean, 'family')}: exact or tie in every scenario"
    if unsupported:
        yield f"  {more}{_count(unsupported, 'family')}: unsupported in every scenario"


def _header(scenarios: Sequence[str], *, indent: int, cell: int) -> Iterator[Text]:
    """Names from top to bottom, one column each, standing on the first row of cells."""
    height = max(len(name) for name in scenarios)
    for level in range(height):
        letters = (name.rjust(height)[level].replace("_", "|") for name in scenarios)
        line = " " * indent + "".join(f"{letter:<{cell}}" for letter in letters)
        yield Text(line.rstrip(), style="bright_black")


def _row(row: Row, names: int, cell: int) -> Text:
    line = Text(f"  {row.family:<{names}}  ")
    for item in row.cells:
        line.append(f"{item.text if item else '':<{cell}}", style=style_of(item) if item else "")
    line.rstrip()
    return line


def _legend(found: Sequence[Matrix]) -> Text:
    cells = {cell for matrix in found for row in matrix.rows for cell in row.cells if cell}
    seen = [verdict for verdict in Verdict if any(cell.verdict is verdict for cell in cells)]
    legend = Text("  ")
    for verdict in seen:
        legend.append(GLYPHS[verdict], style=style_of(Cell(verdict, expected=True)))
        legend.append(f" {verdict}   ")
    if any(not cell.expected for cell in cells):
        legend.append(UNEXPECTED, style=_UNEXPECTED_STYLE)
        legend.append(" not expected   ")
    legend.append("(blank: does not apply)")
    return legend


# Totals ------------------------------------------------------------------------------------------


def _totals(outcome: Outcome) -> Text:
    lines = [Text("totals by verdict", style="bold")]
    for tally in tallies(outcome.results):
        line = Text(f"  {tally.verdict:<12}")
        line.append(f"{tally.cases:>6}", style=style_of(Cell(tally.verdict, expected=True)))
        if tally.unexpected:
            line.append(f"  {tally.unexpected} not expected", style=_UNEXPECTED_STYLE)
        elif not tally.verdict.good:
            line.append("  all as expected")
        lines.append(line)
    return Text("\n").join(lines)


def _verdict(outcome: Outcome) -> Text:
    time = f"in {duration(outcome.seconds)}"
    cases = _count(len(outcome.results), "case")
    if outcome.ok:
        return Text(f"OK: {cases}, all as expected, {time}", style="bold green")
    wrong = [
        f"{len(outcome.unexpected)} of {cases} not as expected" if outcome.unexpected else "",
        _count(len(outcome.problems), "other problem") if outcome.problems else "",
        f"{_count(outcome.missing, 'case')} not run" if outcome.missing else "",
    ]
    text = ", ".join(part for part in wrong if part)
    return Text(f"FAILED: {text}, {time}", style=_UNEXPECTED_STYLE)


def _count(number: int, noun: str) -> str:
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith("y") else f"{number} {noun}s"
