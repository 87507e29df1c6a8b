"""Mutants as a page: a table by module, and each survivor with its change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from conformance.core.grouping import grouped
from conformance.report.mutants import Fate, MutantResult, Tally, by_module, tally
from conformance.report.pages.environment import Renderer

HERE = "mutants.html"

# Mutants with these fates are listed; the others are only counted.
_LISTED = (Fate.SURVIVED, Fate.SAME, Fate.EQUIVALENT, Fate.INVALID)


@dataclass(frozen=True)
class Row:
    """A module or an operator, and its mutants by fate."""

    name: str
    tally: Tally

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of each fate, in their order."""
        return tuple(self.tally.counts[fate] for fate in Fate)


@dataclass(frozen=True)
class Section:
    """All mutants of one library.

    Attributes:
        by: mutants by the verdict of the run that killed them.
        lists: listed mutants by fate.
    """

    library: str
    versions: dict[str, str]
    modules: tuple[Row, ...]
    operators: tuple[Row, ...]
    all: Row
    by: tuple[tuple[str, int], ...]
    lists: tuple[tuple[Fate, tuple[MutantResult, ...]], ...]


def render_mutants(results: Sequence[MutantResult], renderer: Renderer) -> str:
    """The page's text."""
    return renderer.page(
        "mutants.html.j2",
        HERE,
        sections=sections(results),
        fates=tuple(Fate),
    )


def sections(results: Sequence[MutantResult]) -> tuple[Section, ...]:
    """One for each library, by its name."""
    names = sorted({result.library for result in results})
    return tuple(_section(name, [r for r in results if r.library == name]) for name in names)


def _section(library: str, results: Sequence[MutantResult]) -> Section:
    ordered = sorted(results, key=lambda result: result.mutant.operator)
    operators = grouped(ordered, lambda result: result.mutant.operator)
    by_line = sorted(results, key=lambda r: (r.mutant.module, r.mutant.line, r.mutant.start))
    kills = Counter(r.kill.verdict for r in results if r.fate is Fate.KILLED and r.kill)
    return Section(
        library,
        results[-1].versions,
        tuple(Row(name, tally(own)) for name, own in by_module(results).items()),
        tuple(Row(name, tally(own)) for name, own in operators.items()),
        Row("all", tally(results)),
        tuple(kills.most_common()),
        tuple((fate, tuple(r for r in by_line if r.fate is fate)) for fate in _LISTED),
    )
