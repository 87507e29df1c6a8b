"""The results of mutants, in words and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from conformance.power.mutants.unreached import Gap
from conformance.report.mutants import Fate, MutantResult, by_module, tally

_TEXT = 160


def print_results(console: Console, results: Sequence[MutantResult]) -> None:
    """All results, for each library separately."""
    for library in sorted({result.library for result in results}):
        own = [result for result in results if result.library == library]
        console.print(table(own, library))
        for line in (*survivors(own), verdict(own, library)):
            console.print(line, soft_wrap=True)


def table(results: Sequence[MutantResult], title: str) -> Table:
    """The number of mutants by module and fate, and the share that was killed.

    The title names the library, so the modules omit it; a fate without mutants is left out.
    """
    met = tally(results).counts
    fates = [fate for fate in Fate if met[fate] or fate in (Fate.KILLED, Fate.SURVIVED)]
    made = Table(title=title, title_justify="left", box=None, pad_edge=False)
    made.add_column("module", no_wrap=True)
    for fate in fates:
        made.add_column(fate.value, justify="right")
    made.add_column("killed of reached", justify="right")
    for module, own in by_module(results).items():
        made.add_row(module.removeprefix(f"{title}/"), *_cells(own, fates))
    made.add_row("all", *_cells(results, fates), style="bold")
    return made


def _cells(results: Sequence[MutantResult], fates: Sequence[Fate]) -> list[str]:
    counts = tally(results)
    share = "" if counts.share is None else f"{counts.share:.1%}"
    return [*(str(counts.counts[fate]) for fate in fates), share]


def survivors(results: Sequence[MutantResult]) -> Iterator[str]:
    """A few lines for each survivor: its place, its change, and how many schedules ran it."""
    found = [result for result in results if result.fate is Fate.SURVIVED]
    for result in sorted(found, key=lambda r: (r.mutant.module, r.mutant.line)):
        mutant = result.mutant
        left = f", {result.unplayed} cases more reach it" if result.unplayed else ""
        yield f"survived: {mutant.module}:{mutant.line} {mutant.function} ({mutant.operator})"
        yield f"  - {_short(mutant.before)}"
        yield f"  + {_short(mutant.after)}"
        yield f"  {result.played} of {result.reaching} schedules played{left}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _TEXT else f"{line[: _TEXT - 1]}…"


def verdict(results: Sequence[MutantResult], library: str) -> str:
    """A summary sentence."""
    counts = tally(results)
    word = "OK" if counts.killed == counts.of else "FAILED"
    share = "" if counts.share is None else f" ({counts.share:.1%})"
    return (
        f"{word}: {library}: {counts.killed} of {counts.of} mutants that are reached and not "
        f"equivalent were killed{share}"
    )


def print_gaps(console: Console, found: Sequence[Gap], *, every: bool) -> None:
    """The lines that no schedule runs; with a known reason only as counts, unless ``every``."""
    for gap in found:
        if not gap.reason or every:
            why = f": {gap.reason}" if gap.reason else ""
            where = f"{gap.module} {gap.function}: {gap.missing} of {gap.of} lines: {gap.text}"
            console.print(f"unreached: {where}{why}", soft_wrap=True)
    with_reason = sum(gap.missing for gap in found if gap.reason)
    total = sum(gap.missing for gap in found)
    console.print(
        f"{total} lines are not reached in {len(found)} functions; {with_reason} have a reason",
        soft_wrap=True,
    )
