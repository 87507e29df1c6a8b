"""A comparison of two runs as Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.report.comparison import Change, Comparison, Kind
from conformance.report.markdown import code, limited, table
from conformance.report.matrix import GLYPHS, UNEXPECTED, Cell

MOST_BYTES = 65_000
"""A comment on a pull request may hold 65536 characters."""
# Changes that leave a cell as it was, or that can be many.
_SAME_GLYPH = (Kind.NOISE, Kind.COST, Kind.EXPLAINED, Kind.MOVED)


def markdown(found: Comparison) -> str:
    """Totals, then changed cells, then each change; what does not fit is only counted."""
    return limited(comparison_lines(found), MOST_BYTES)


def comparison_lines(found: Comparison) -> list[str]:
    """The lines of ``markdown``, without a limit."""
    return [*_head(found), *_cells(found), *_each(found)]


def summary(found: Comparison) -> str:
    """The number of changes of each kind, in one line."""
    counts = [f"{len(found.of(kind))} {kind}" for kind in Kind if found.of(kind)]
    missing = [f"{found.missing} planned and not run"] if found.missing else []
    return ", ".join([*missing, *counts, f"{found.same} as before"])


def _head(found: Comparison) -> Iterator[str]:
    yield "### Conformance: " + ("regressed" if found.regressed else "no regression")
    yield ""
    yield summary(found)
    if found.versions:
        yield ""
        pairs = found.versions.items()
        yield from (f"- {code(name)}: {code(a)} -> {code(b)}" for name, (a, b) in pairs)


def _cells(found: Comparison) -> Iterator[str]:
    """Families and scenarios with a change of verdict, as ``before > after`` glyphs.

    Failures that became known are left to the list of cases: there are often many.
    """
    moved = [c for c in found.changes if c.kind not in _SAME_GLYPH]
    both = [c for c in moved if c.before and c.after]
    lanes = sorted({(c.result.engine, c.result.dtype) for c in both})
    for engine, dtype in lanes:
        mine = [c for c in both if (c.result.engine, c.result.dtype) == (engine, dtype)]
        columns = list(dict.fromkeys(c.result.scenario for c in mine))
        yield from ("", f"{code(f'{engine} {dtype}')}: changed cells, before > after", "")
        rows = []
        for family in dict.fromkeys(c.result.family for c in mine):
            cells = {c.result.scenario: _cell(c) for c in mine if c.result.family == family}
            rows.append((code(family), *(cells.get(name, "") for name in columns)))
        yield from table(("family", *map(code, columns)), rows)
    if both:
        glyphs = {
            r.verdict: GLYPHS[r.verdict] for c in both for r in (c.before, c.after) if r is not None
        }
        yield ""
        legend = [f"`{glyph}` {verdict}" for verdict, glyph in glyphs.items()]
        yield ", ".join([*legend, f"`{UNEXPECTED}` not expected"])


def _cell(change: Change) -> str:
    assert change.before is not None
    assert change.after is not None
    mark = "**" if change.kind.regression else ""
    before, after = (Cell(r.verdict, r.expected).text for r in (change.before, change.after))
    glyphs = f"{before} > {after}"
    return f"{mark}`{glyphs}`{mark}"


def _each(found: Comparison) -> Iterator[str]:
    for kind in Kind:
        changes = found.of(kind)
        if not changes:
            continue
        yield from ("", f"#### {kind} ({len(changes)})", "")
        rows = [(code(c.result.case), f"{code(c.text)}{_why(c)}") for c in changes]
        yield from table(("case", "what"), rows)


def _why(change: Change) -> str:
    """The first finding of a regression, on one line."""
    after = change.after
    if not change.kind.regression or after is None or not after.evidence:
        return ""
    return f"<br>{code(after.evidence[0].what[:200])}"
