"""The summary of a run for the terminal."""

from __future__ import annotations

import io
import textwrap
from collections import Counter
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from conformance.core.excused import not_offered
from conformance.core.plain_text import plain
from conformance.core.verdict import CaseResult, Verdict
from conformance.report.cascades import Cascade
from conformance.report.left_out import behind_known
from conformance.report.matrix import Cell, matrices
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
from conformance.report.terminal_matrix import (
    UNEXPECTED_STYLE,
    legend_text,
    matrix_text,
    style_of,
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
