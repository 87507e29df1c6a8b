"""The summary of a run for the terminal."""

from __future__ import annotations

import io
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from conformance.core.excused import not_offered
from conformance.core.plain_text import plain
from conformance.core.verdict import CaseResult, Verdict
from conformance.report.cascades import Cascade
from conformance.report.left_out import behind_known
from conformance.report.matrix import GLYPHS, MENDED, UNEXPECTED, Cell, Matrix, Row, matrices
from conformance.report.message import failure_message
from conformance.report.outcome import (
    Outcome,
    about_machine,
    count,
    duration,
    listed,
    slowest,
    tallies,
)

_REFUSAL = 120  # characters of what a server says
_KNOWN = 3  # known defects, those of most cases
_NAMED = 20  # cases named after "n more"


def summary(
    outcome: Outcome,
    *,
    width: int,
    failures: bool = True,
    durations: int = 5,
    brief: bool = False,
    every_family: bool = False,
) -> Text:
    """Findings, slowest cases, problems, matrices, totals and, last, the result in one line.

    Args:
        outcome: outcome of the run.
        width: columns of the terminal.
        failures: whether to show the first case of each finding; pytest shows all in its own way.
        durations: how many of the slowest cases to list.
        brief: show only failures, problems and the last line.
        every_family: whether to show also families that are clean or unsupported.
    """
    blocks: list[Text] = []
    if failures:
        blocks += [_finding(cascade) for cascade in outcome.cascades]
    elif outcome.cascades:
        blocks.append(Text("\n").join(_sentence(cascade) for cascade in outcome.cascades))
    if durations and outcome.results and not brief:
        blocks.append(_slowest(outcome, durations))
    found = () if brief else matrices(outcome.results, outcome.scenarios)
    blocks += [matrix_text(matrix, width, every_family=every_family) for matrix in found]
    if found:
        unexpected = "worse" if outcome.against else "not expected"
        blocks.append(legend_text(found, width, unexpected))
    if outcome.problems:
        blocks.append(Text("\n").join(Text(p, style=UNEXPECTED_STYLE) for p in outcome.problems))
    if notes := (*about_machine(outcome.results), *outcome.notes):
        blocks.append(Text("\n".join(notes)))
    if outcome.results and not brief:
        blocks.append(_totals(outcome))
    blocks.append(_verdict(outcome))
    return Text("\n\n").join(blocks)


def render(text: Text, *, colour: bool) -> str:
    """``text`` as a string, with ANSI colours or without, and no other control characters."""
    text = Text(plain(text.plain), spans=text.spans) if text.plain != plain(text.plain) else text
    buffer = io.StringIO()
    console = Console(
        file=buffer, force_terminal=colour, color_system="standard" if colour else None
    )
    console.print(text, soft_wrap=True, end="")
    return buffer.getvalue()


def _finding(cascade: Cascade) -> Text:
    """The finding's sentence, the message of its first case, and the names of the others."""
    message = failure_message(cascade.first)
    others = [result.case for result in cascade.cases[1:]]
    lines = [_sentence(cascade), Text(message)]
    if others:
        lines.append(Text(f"  and {len(others)} more: {listed(others, _NAMED)}"))
    return Text("\n").join(lines)


def _sentence(cascade: Cascade) -> Text:
    return Text(cascade.sentence, style=UNEXPECTED_STYLE)


def _slowest(outcome: Outcome, most: int) -> Text:
    cases = slowest(outcome.results, most)
    lines = [Text(f"slowest {len(cases)} cases (wall time, of which in the model)", style="bold")]
    for result in cases:
        model = duration(result.forward_seconds)
        lines.append(Text(f"  {duration(result.seconds):>10}  {model:>10}  {result.case}"))
    return Text("\n").join(lines)


def _totals(outcome: Outcome) -> Text:
    lines = [Text("totals by verdict", style="bold")]
    for tally in tallies(outcome.results):
        line = Text(f"  {tally.verdict:<12}")
        line.append(f"{tally.cases:>6}", style=style_of(Cell(tally.verdict, expected=True)))
        if tally.unexpected:
            what = "worse" if outcome.against else "not expected"
            line.append(f"  {tally.unexpected} {what}", style=UNEXPECTED_STYLE)
        elif not tally.verdict.good and not outcome.against:
            line.append("  all as expected")
        lines.append(line)
    if sentence := behind_known(outcome.results).sentence:
        lines.append(Text(f"  {sentence}"))
    if left_out := [f"{r.scenario}/{name}" for r in outcome.results for name in _lacking(r)]:
        lines.append(Text(f"  not offered, the other schedules were: {', '.join(left_out)}"))
    for result in outcome.results:
        refusals = not_offered(result.evidence) if result.verdict is Verdict.UNSUPPORTED else {}
        for why in list(refusals.values())[:1]:
            said = textwrap.shorten(why, _REFUSAL, placeholder="...")
            lines.append(Text(f"  not offered: {result.scenario}: {said}"))
    known = Counter(name for r in outcome.results if r.known for name in r.known.split(", "))
    if names := [name for name, _ in known.most_common()]:
        lines.append(Text(f"  known: {listed(names, _KNOWN)}; each: conformance show defects ID"))
    return Text("\n").join(lines)


def _lacking(result: CaseResult) -> Iterator[str]:
    """The schedules that a server does not offer, of a case that has others."""
    if result.verdict is not Verdict.UNSUPPORTED:
        yield from not_offered(result.evidence)


def _not_played(outcome: Outcome) -> str:
    parts = [
        f"{outcome.reused} reused from earlier runs" if outcome.reused else "",
        f"{outcome.unchanged} left out" if outcome.unchanged else "",
    ]
    text = ", ".join(filter(None, parts))
    return f" ({text})" if text else ""


def _verdict(outcome: Outcome) -> Text:
    time = f"in {duration(outcome.seconds)}{_not_played(outcome)}"
    cases = count(len(outcome.results), "case")
    if outcome.interrupted:
        done, planned = len(outcome.results), len(outcome.results) + outcome.missing
        some = f"; {len(outcome.unexpected):,} not as expected" if outcome.unexpected else ""
        return Text(f"interrupted: {done:,} of {planned:,} run{some}, {time}", UNEXPECTED_STYLE)
    if outcome.ok and not outcome.results:
        return Text(f"NOTHING RUN: no case was played, {time}", style=UNEXPECTED_STYLE)
    if outcome.ok:
        so = f"none worse than in {outcome.against}" if outcome.against else "all as expected"
        return Text(f"OK: {cases}, {so}, {time}", style="bold green")
    bad = f"worse than in {outcome.against}" if outcome.against else "not as expected"
    wrong = [
        f"{len(outcome.unexpected)} of {cases} {bad}" if outcome.unexpected else "",
        count(len(outcome.problems), "other problem") if outcome.problems else "",
        f"{count(outcome.missing, 'case')} not run" if outcome.missing else "",
    ]
    text = ", ".join(part for part in wrong if part)
    return Text(f"FAILED: {text}, {time}", style=UNEXPECTED_STYLE)


# A matrix as text that fits the terminal: further columns go into further blocks ------------------

FEW_FAMILIES = 20
"""Up to this many rows a matrix shows every family; above, only those with problems."""

UNEXPECTED_STYLE = "bold red"

_KNOWN_STYLE = "yellow"
_MENDED_STYLE = "blue"
_STYLES = {
    Verdict.EXACT: "green",
    Verdict.TIE: "cyan",
    Verdict.UNSUPPORTED: "bright_black",
}
MOST_LINES = 6
LEAST_LETTERS = 3
"""With this many letters per line, every scenario name of the ladder fits."""

_MOST_LETTERS = 12
_POINT = "."

_LEAST = 2 * (LEAST_LETTERS + 1)  # room for two columns; long family names are cut to leave it
_CUT = ".."


def matrix_text(matrix: Matrix, width: int, *, every_family: bool = False) -> Text:
    """The matrix in lines of at most ``width`` columns, as long as these are 20 or more."""
    counts = f"{count(len(matrix.rows), 'family')} x {count(len(matrix.scenarios), 'scenario')}"
    head = f"{matrix.engine} {matrix.dtype}: {counts}"
    lines = [Text(line, style="bold") for line in _broken(head.split(" "), width)]
    shown = matrix.rows if every_family else _worth_showing(matrix)
    if shown:
        lines += _blocks(matrix.scenarios, shown, width)
    for sentence in _left_out(matrix, len(shown)):
        lines += [Text(f"  {line}", "bright_black") for line in _broken(sentence, width - 2)]
    return Text("\n").join(lines)


def legend_text(found: Sequence[Matrix], width: int, unexpected: str = "not expected") -> Text:
    """The meaning of the glyphs that occur, in lines of at most ``width`` columns."""
    cells = {cell for matrix in found for row in matrix.rows for cell in row.cells if cell}
    seen = [verdict for verdict in Verdict if any(cell.verdict is verdict for cell in cells)]
    items = [
        Text(GLYPHS[verdict], style_of(Cell(verdict, expected=True))).append(f" {verdict}", "none")
        for verdict in seen
    ]
    if any(not cell.expected for cell in cells):
        items.append(Text(UNEXPECTED, UNEXPECTED_STYLE).append(f" {unexpected}", "none"))
    if any(cell.mended and not cell.verdict.good for cell in cells):
        items.append(Text(MENDED, _MENDED_STYLE).append(" known, right once mended", "none"))
    for verdict in (v for v in seen if v.good):
        if any(cell.mended and cell.verdict is verdict for cell in cells):
            glyph = Text(GLYPHS[verdict] + MENDED, _MENDED_STYLE)
            items.append(glyph.append(f" {verdict}, run only with known defects mended", "none"))
    items.append(Text("(blank: does not apply)"))
    lines = [Text()]
    for item in items:
        if len(lines[-1]) + 3 + len(item) > width and lines[-1]:
            lines.append(Text())
        lines[-1].append("   " if lines[-1] else "  ").append_text(item)
    return Text("\n").join(lines)


def style_of(cell: Cell) -> str:
    """The colour of a cell: red if unexpected, yellow for a known defect, blue for a mended one."""
    if cell.expected and cell.mended:
        return _MENDED_STYLE
    return _STYLES.get(cell.verdict, _KNOWN_STYLE) if cell.expected else UNEXPECTED_STYLE


def _worth_showing(matrix: Matrix) -> tuple[Row, ...]:
    if len(matrix.rows) <= FEW_FAMILIES:
        return matrix.rows
    return tuple(row for row in matrix.rows if not row.clean and not row.unsupported)


def _left_out(matrix: Matrix, shown: int) -> Iterator[list[str]]:
    if shown == len(matrix.rows):
        return
    clean = sum(row.clean for row in matrix.rows)
    unsupported = sum(row.unsupported for row in matrix.rows)
    more = "more " if shown else ""
    if clean:
        yield f"{more}{count(clean, 'family')}: exact or tie in every scenario".split(" ")
    if unsupported:
        yield f"{more}{count(unsupported, 'family')}: unsupported in every scenario".split(" ")


def _blocks(scenarios: Sequence[str], rows: Sequence[Row], width: int) -> Iterator[Text]:
    """As many columns side by side as fit, then the next ones with the same rows.

    If a word of a name has no room above its column, each name has a line of its own.
    """
    longest = max(len(row.family) for row in rows)
    letters = letters_for(scenarios, width - longest - 3)
    cut = any(len(word) > letters for name in scenarios for word in name.split("_"))
    names = _stair_names(scenarios, longest, width) if cut and width >= _NARROW else 0
    if names:
        yield from _stair_blocks(scenarios, rows, names, width)
    else:
        yield from _broken_blocks(scenarios, rows, width)


def _broken_blocks(scenarios: Sequence[str], rows: Sequence[Row], width: int) -> Iterator[Text]:
    """Blocks whose names are broken into lines above their columns."""
    names = min(max(len(row.family) for row in rows), max(width - 4 - _LEAST, 4))
    letters = letters_for(scenarios, width - names - 3)
    room = max((width - names - 3) // (letters + 1), 1)
    for start in range(0, len(scenarios), room):
        part = slice(start, start + room)
        for line in head_lines(scenarios[part], letters):
            yield Text(" " * (names + 4) + line, style="bright_black")
        for row in rows:
            yield _row(row, part, names, letters + 1)
    if cut := [name for name in scenarios if is_cut(name, letters)]:
        for line in _broken(f"in full: {', '.join(cut)}".split(" "), width - 2):
            yield Text(f"  {line}", "bright_black")


def _row(row: Row, part: slice, names: int, cell: int) -> Text:
    name = row.family if len(row.family) <= names else row.family[: names - len(_CUT)] + _CUT
    line = Text(f"  {name:<{names}}  ")
    for item in row.cells[part]:
        line.append(f"{item.text if item else '':<{cell}}", style=style_of(item) if item else "")
    line.rstrip()
    return line


def _broken(words: Sequence[str], width: int) -> list[str]:
    """The words in lines of at most ``width`` columns; words are never broken."""
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return lines


# Names of columns as a stair: each on a line of its own, from which a line leads to its column ----

_STEP = 3  # the width of a column: a glyph, its mark and a blank
_NARROW = 40  # narrower terminals have no room for names


def _stair_names(scenarios: Sequence[str], longest: int, width: int) -> int:
    """The room that names of families get, so that names of scenarios fit above; 0: there is none.

    A scenario's name ends above its column, so that the first ones reach over the families.
    """
    names, before = longest, 0
    while names != before:
        before, room = names, max(_stair_room(names, width), 1)
        reach = (len(name) - _STEP * (n % room) - _STEP for n, name in enumerate(scenarios))
        names = max(names, *reach)
        if names > width // 2:
            return 0
    return names


def _stair_room(names: int, width: int) -> int:
    """How many columns fit side by side."""
    return (width - names - 3) // _STEP


def _stair_blocks(
    scenarios: Sequence[str], rows: Sequence[Row], names: int, width: int
) -> Iterator[Text]:
    room = _stair_room(names, width)
    for start in range(0, len(scenarios), room):
        part = slice(start, start + room)
        for line in stair_lines(scenarios[part], names + 4):
            yield Text(line, style="bright_black")
        for row in rows:
            yield _row(row, part, names, _STEP)


def stair_lines(names: Sequence[str], indent: int) -> Iterator[str]:
    """The lines above the columns, the last column's name first.

    Args:
        indent: where the first column is. Each name ends above its column.
    """
    for column in range(len(names) - 1, -1, -1):
        later = len(names) - 1 - column
        guides = f"{'':{_STEP - 1}}|" * later
        yield f"{names[column]:>{indent + _STEP * column + 1}}{guides}"


# Names of columns in narrow heads: each name broken into at most six lines ----------------------


def letters_for(names: Sequence[str], room: int) -> int:
    """The most letters per line of each head that do not increase the number of column blocks.

    Args:
        names: names of all columns.
        room: width of a block of columns, with a blank after each column.
    """

    def blocks(letters: int) -> int:
        return -(-len(names) // max(room // (letters + 1), 1))

    longest = max((len(word) for name in names for word in name.split("_")), default=0)
    most = max(min(longest, _MOST_LETTERS), LEAST_LETTERS)
    wide = range(LEAST_LETTERS, most + 1)
    return max(letters for letters in wide if blocks(letters) == blocks(LEAST_LETTERS))


def broken(name: str, letters: int) -> list[str]:
    """A name in at most ``MOST_LINES`` lines; a shortened name ends with a point."""
    words = [word for word in name.split("_") if word]
    lines = [line for word in words for line in _evenly(word, letters)]
    if len(lines) > MOST_LINES:
        lines = list(_evenly("".join(words), letters, full=True))
    if len(lines) > MOST_LINES:
        lines = lines[:MOST_LINES]
        lines[-1] = lines[-1][: letters - len(_POINT)] + _POINT
    return lines


def is_cut(name: str, letters: int) -> bool:
    """Whether the head shortens the name."""
    return "".join(broken(name, letters)) != name.replace("_", "")


def head_lines(names: Sequence[str], letters: int) -> Iterator[str]:
    """The lines above the columns, each ``letters`` wide and one blank apart, from the top."""
    heads = [broken(name, letters) for name in names]
    height = max(map(len, heads), default=0)
    for level in range(height):
        parts = ([""] * (height - len(head)) + head for head in heads)
        yield " ".join(f"{lines[level]:<{letters}}" for lines in parts).rstrip()


def _evenly(word: str, letters: int, *, full: bool = False) -> Iterator[str]:
    """Split a word into as few lines as needed, equally long or, with ``full``, full lines."""
    count = -(-len(word) // letters)
    size = letters if full else -(-len(word) // count)
    for start in range(0, len(word), size):
        yield word[start : start + size]
