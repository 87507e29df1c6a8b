"""What each server does: a table from results, so that a user can choose between servers."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from conformance.core.behaviours import BEHAVIOURS, Behaviour
from conformance.core.inventory import Inventory
from conformance.core.verdict import CaseResult, Verdict
from conformance.report.markdown import between, code, one_line, table
from conformance.report.outcome import listed

_SCENARIOS = frozenset(what.scenario for what in BEHAVIOURS)
_LONGEST = 120  # characters of a finding
_FAMILIES = 3  # named in a cell
BEGIN, END = "<!-- table of servers: begin -->", "<!-- table of servers: end -->"
"""Marks around the table in a Markdown file."""


class Answer(enum.StrEnum):
    """Whether a server does something."""

    YES = "yes"
    NO = "no"
    NOT_OFFERED = "not offered"
    NOT_SHOWN = "not shown"
    NOT_ASKED = "not asked"


@dataclass(frozen=True)
class Shown:
    """What one case shows of a behaviour; ``why`` is its first finding about it."""

    answer: Answer
    result: CaseResult
    why: str = ""


@dataclass(frozen=True)
class Cell:
    """A server's behaviour: ``shown`` in each case, the worst first."""

    answer: Answer
    shown: tuple[Shown, ...] = ()
    why: str = ""

    @property
    def evidence(self) -> CaseResult | None:
        """The case that decides."""
        return self.shown[0].result if self.shown else None

    @property
    def families(self) -> str:
        """If there are several families, those with this answer; empty if all have it."""
        some = [shown.result.family for shown in self.shown if shown.answer is self.answer]
        return "" if len(some) == len(self.shown) else listed(some, _FAMILIES)


@dataclass(frozen=True)
class Compatibility:
    """Servers by behaviours: for each behaviour a cell for each server."""

    servers: tuple[str, ...]
    versions: tuple[str, ...]
    rows: tuple[tuple[Behaviour, tuple[Cell, ...]], ...]

    @property
    def asked(self) -> tuple[tuple[Behaviour, tuple[Cell, ...]], ...]:
        """The rows of which some server was asked."""
        return tuple(row for row in self.rows if any(_asked(cell) for cell in row[1]))

    @property
    def not_asked(self) -> tuple[str, ...]:
        """What no server was asked."""
        return tuple(what.text for what, cells in self.rows if not any(map(_asked, cells)))

    def asked_of(self, server: int) -> tuple[tuple[Behaviour, Cell], ...]:
        """The rows of which this server was asked."""
        return tuple((what, cells[server]) for what, cells in self.rows if _asked(cells[server]))

    def not_asked_of(self, server: int) -> tuple[str, ...]:
        """What this server was not asked."""
        return tuple(what.text for what, cells in self.rows if not _asked(cells[server]))


def _asked(cell: Cell) -> bool:
    return cell.answer is not Answer.NOT_ASKED


def compatibility(results: Iterable[CaseResult], inventory: Inventory) -> Compatibility | None:
    """The table; ``None`` if no server was asked."""
    found = [result for result in results if result.scenario in _SCENARIOS]
    servers = tuple(dict.fromkeys(result.engine for result in found))
    if not servers:
        return None
    own = {name: [r for r in found if r.engine == name] for name in servers}
    rows = tuple(
        (what, tuple(_cell(what, name, own[name], inventory) for name in servers))
        for what in BEHAVIOURS
    )
    return Compatibility(servers, tuple(_versions(own[name]) for name in servers), rows)


def _cell(
    what: Behaviour, server: str, results: Sequence[CaseResult], inventory: Inventory
) -> Cell:
    cases = [result for result in results if result.scenario == what.scenario]
    shown = [found for result in cases if (found := _shown(what, result)) is not None]
    order = (Answer.NO, Answer.NOT_SHOWN, Answer.YES, Answer.NOT_OFFERED)
    shown.sort(key=lambda found: (order.index(found.answer), found.result.case))
    if shown:
        return Cell(shown[0].answer, tuple(shown), shown[0].why)
    families = {result.family for result in results}
    applicable = inventory.applicable.get(server)
    if applicable is None or any(what.scenario in applicable.get(f, ()) for f in families):
        return Cell(Answer.NOT_ASKED)
    return Cell(Answer.NOT_OFFERED, why="by what the engine declares, or the families asked")


def _shown(what: Behaviour, result: CaseResult) -> Shown | None:
    """What the schedules of a case show; ``None`` if they were not run."""
    made = [s for s in result.schedules if _about(what, s.name)]
    findings = [f for f in result.evidence if not f.verdict.good]
    whole = [f for f in findings if not f.schedule]
    if result.schedules and not made:
        return None
    verdicts = [schedule.verdict for schedule in made] or [result.verdict]
    own = [f for f in findings if f.schedule and _about(what, f.schedule)]
    if made and not own and result.verdict is Verdict.VACUOUS:
        verdicts.append(Verdict.VACUOUS)
    worst = max(verdicts, key=lambda verdict: verdict.severity)
    bad = worst is not Verdict.TIE and worst is not Verdict.EXACT
    why = next((f.what for f in (*own, *whole)), "") if bad else ""
    return Shown(_answer(worst), result, _short(why))


def _about(what: Behaviour, schedule: str) -> bool:
    return not what.schedules or any(fnmatchcase(schedule, glob) for glob in what.schedules)


def _answer(verdict: Verdict) -> Answer:
    if verdict.good:
        return Answer.YES
    found = {Verdict.UNSUPPORTED: Answer.NOT_OFFERED, Verdict.VACUOUS: Answer.NOT_SHOWN}
    return found.get(verdict, Answer.NO)


def _short(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def _versions(results: Sequence[CaseResult]) -> str:
    """The release of the server's library, and the families that were run."""
    names = ("mlx-vlm", "mlx-lm", "openai")
    versions = results[0].versions
    found = next((f"{name} {versions[name]}" for name in names if name in versions), "")
    families = sorted({result.family for result in results})
    return f"{found}, with {', '.join(families)}" if found else ", ".join(families)


def servers_markdown(found: Compatibility) -> list[str]:
    """The table's lines, and the cases that its cells lead to, folded away."""
    head = ["", *(code(name) for name in found.servers)]
    places = _places(found)
    rows = [[what.text, *(_marked(cell, places) for cell in cells)] for what, cells in found.asked]
    lines = [f"- {code(n)}: {v}" for n, v in zip(found.servers, found.versions, strict=True)]
    lines += ["", *table(head, rows)]
    if found.not_asked:
        lines += ["", *_folded("Not asked", [f"- {text}" for text in found.not_asked])]
    cases = [f'- <a id="{place}"></a>{code(one_line(case))}' for case, place in places.items()]
    return [*lines, "", *_folded("Cases", cases)]


def _folded(summary: str, lines: Sequence[str]) -> list[str]:
    return ["<details>", f"<summary>{summary}</summary>", "", *lines, "", "</details>"]


def _places(found: Compatibility) -> dict[str, str]:
    """For each case that decides a cell its place in the list of cases."""
    cells = (cell for _, row in found.asked for cell in row)
    cases = dict.fromkeys(cell.evidence.case for cell in cells if cell.evidence)
    return {case: f"case-{number}" for number, case in enumerate(cases, 1)}


def _marked(cell: Cell, places: Mapping[str, str]) -> str:
    said = f"[{cell.answer}](#{places[cell.evidence.case]})" if cell.evidence else str(cell.answer)
    return f"{said} ({cell.families})" if cell.families else said


def with_table(text: str, found: Compatibility) -> str:
    """A Markdown text with the table between its marks; without marks, the table alone."""
    return between(text, BEGIN, END, "\n".join(servers_markdown(found)))
