"""The page of the known upstream defects that the cases of a report show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from conformance.core.known_defect import KnownDefect, releases
from conformance.core.verdict import CaseResult
from conformance.report.defects_text import parts, reach, title_of
from conformance.report.pages.environment import DEFECTS, Renderer

HERE = DEFECTS


@dataclass(frozen=True)
class Shown:
    """A defect, and how many cases of the report each of its entries is named by."""

    defect: KnownDefect
    cases: tuple[tuple[str, int], ...]

    @property
    def count(self) -> int:
        """Cases of the report that show it; one with two of its entries counts twice."""
        return sum(number for _, number in self.cases)


def defects_shown(
    defects: Iterable[KnownDefect], results: Iterable[CaseResult]
) -> tuple[Shown, ...]:
    """The defects that a result names, in their order."""
    named = Counter(name for r in results if r.known for name in r.known.split(", "))
    found = (
        Shown(one, tuple((name, named[name]) for name in one.entries if named[name]))
        for one in defects
    )
    return tuple(shown for shown in found if shown.cases)


def render_defects(found: Sequence[Shown], renderer: Renderer) -> str:
    """The page's text."""
    return renderer.page(
        "defects.html.j2",
        HERE,
        found=found,
        of=title_of(releases(shown.defect for shown in found)),
        parts=parts,
        reach=reach,
    )
