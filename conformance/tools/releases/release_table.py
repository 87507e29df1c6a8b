"""The table family x release, and when each defect was added and fixed, as text or Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from conformance.core.grouping import compared
from conformance.core.verdict import CaseResult
from conformance.report.cost_table import moved_costs
from conformance.report.history import MENDED, History, State, histories
from conformance.report.markdown import table as table_lines
from conformance.report.matrix import GLYPHS
from conformance.report.moved import moved_streams
from conformance.tools.releases.cache_outcomes import changes as cache_changes
from conformance.tools.releases.release_run import Column

_LONGEST = 160


@dataclass(frozen=True)
class Table:
    """The content of the table, as plain text.

    Attributes:
        head: the releases' names.
        rows: a family and, for each release, its cell.
        changes: lines about defects that were added or fixed.
        unlike: lines about cases that are wrong in several releases, differently in each.
        caches: lines about cache classes that differ between releases.
        lasting: lines about schedules that are wrong wherever their state is known.
        costs: lines about counts that changed from one release to the next.
        streams: lines about single streams that changed.
        problems: releases without results, with the reason.
        unknown: why nothing is known of a family in a release.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    changes: tuple[str, ...]
    unlike: tuple[str, ...]
    caches: tuple[str, ...]
    lasting: tuple[str, ...]
    problems: tuple[str, ...]
    costs: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def make_table(columns: Sequence[Column]) -> Table:
    """The table of the releases' results, from the oldest to the newest."""
    found = histories([(c.release.version, c.results) for c in columns], mended=True)
    families = sorted({history.family for history in found})
    unlike = [h for h in found if h.differs and not h.changed]
    lasting = [h for h in found if State.WRONG in h.states and State.RIGHT not in h.states]
    return Table(
        head=tuple(str(column.release) for column in columns),
        rows=tuple(
            (
                family,
                tuple(
                    "cannot be run" if column.empty else _cell(found, family, index)
                    for index, column in enumerate(columns)
                ),
            )
            for family in families
        ),
        changes=tuple(_changes(h for h in found if h.changed)),
        unlike=tuple(line for line, _ in _grouped(unlike, lambda h: h.signatures)),
        caches=tuple(cache_changes([(c.release.version, c.caches) for c in columns])),
        lasting=tuple(_changes(lasting)),
        problems=tuple(f"{c.release} {c.problem}" for c in columns if c.problem),
        unknown=tuple(_unknown(found, families, columns)),
        costs=tuple(
            f"{new.case} {text}, {between}"
            for old, new, between in _next(columns)
            for text in moved_costs(old, new)
        ),
        streams=tuple(
            f"{new.case} {text}, {between}"
            for old, new, between in _next(columns)
            if (text := moved_streams(old, new))
        ),
    )


def _next(columns: Sequence[Column]) -> Iterator[tuple[CaseResult, CaseResult, str]]:
    """Each result with the result of the previous release that ran the case."""
    last: dict[str, tuple[str, CaseResult]] = {}
    for column in columns:
        now = {result.case: (column.release.version, result) for result in column.results}
        for (before, old), (version, new) in compared(last, now).both.values():
            yield old, new, f"from {before} to {version}"
        last |= now


def _cell(found: Iterable[History], family: str, index: int) -> str:
    """The worst verdict's glyph, and the number of wrong schedules among those of known state."""
    own = [h for h in found if h.family == family and not h.schedule.endswith(MENDED)]
    states = [h.states[index] for h in own]
    wrong = states.count(State.WRONG)
    known = wrong + states.count(State.RIGHT)
    if not known:
        return "unknown"
    given = [h.outcomes[index] for h in own if h.states[index] is State.WRONG]
    worst = max((t.verdict for t in given if t), key=lambda v: v.severity, default=None)
    return f"{GLYPHS[worst] if worst else '.'} {wrong}/{known}"


def _unknown(
    found: Sequence[History], families: Sequence[str], columns: Sequence[Column]
) -> Iterator[str]:
    """For each family, the releases in which nothing is known of it, by reason."""
    for family in families:
        own = [h for h in found if h.family == family]
        reasons: dict[str, list[str]] = {}
        for index, column in enumerate(columns):
            if not column.empty and _cell(found, family, index) == "unknown":
                reasons.setdefault(_why(own, index), []).append(column.release.version)
        for why, releases in reasons.items():
            yield f"{family} in {', '.join(releases)}: {_short(why)}"


def _why(own: Sequence[History], index: int) -> str:
    """The commonest outcome of a release's schedules."""
    given = [h.outcomes[index] for h in own]
    said = Counter(
        f"{one.verdict} - {one.what}" if one.what else str(one.verdict) for one in given if one
    )
    return said.most_common(1)[0][0] if said else "no case of it was run"


def _changes(found: Iterable[History]) -> list[str]:
    """One line for each scenario of a family and each history."""
    return [
        f"{line} - {_short(group[0].example)}" for line, group in _grouped(found, lambda h: h.shape)
    ]


def _grouped(
    found: Iterable[History], said: Callable[[History], str]
) -> Iterator[tuple[str, list[History]]]:
    """A line for the histories of a scenario of a family with the same text, and these."""
    groups: dict[tuple[str, str, str], list[History]] = {}
    for history in found:
        engine = history.case.partition("/")[0]
        key = (f"{engine}/{history.family}", history.scenario, said(history))
        groups.setdefault(key, []).append(history)
    for (family, scenario, text), group in sorted(groups.items(), key=lambda item: item[0]):
        yield f"{family} {scenario}{_named(group)}: {text}", group


def _named(group: Sequence[History]) -> str:
    names = dict.fromkeys(h.schedule for h in group if h.schedule)
    return f" ({', '.join(names)})" if names else ""


def _short(what: str) -> str:
    return what if len(what) <= _LONGEST else what[: _LONGEST - 4] + " ..."


def as_text(table: Table) -> str:
    """The table for a terminal."""
    lines = ["wrong schedules of those with a known state, and the worst verdict"]
    widths = [
        max(len(cells[index]) for cells in [table.head, *(row for _, row in table.rows)])
        for index in range(len(table.head))
    ]
    first = max((len(family) for family, _ in table.rows), default=0)
    for name, cells in (("", table.head), *table.rows):
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        lines.append(f"  {name:<{first}}  {'  '.join(padded)}".rstrip())
    for title, entries in _parts(table):
        lines += ["", f"{title}:", *(f"  {entry}" for entry in entries)]
    return "\n".join(lines)


def as_markdown(table: Table) -> str:
    """The table for a pull request or an issue."""
    lines = table_lines(("family", *table.head), [(family, *cells) for family, cells in table.rows])
    for title, entries in _parts(table):
        lines += ["", f"**{title.capitalize()}**", "", *(f"- {entry}" for entry in entries)]
    return "\n".join(lines)


def _parts(table: Table) -> list[tuple[str, tuple[str, ...]]]:
    """The non-empty parts below the table."""
    parts = [
        ("cannot be run", table.problems),
        ("unknown", table.unknown),
        ("added or fixed", table.changes),
        ("not right, in another way", table.unlike),
        ("cache classes", table.caches),
        ("what work costs", table.costs),
        ("single streams", table.streams),
        ("wrong in every release with a known state", table.lasting),
    ]
    return [(title, entries) for title, entries in parts if entries]
