"""The cost of work: a table of engines by contract, from results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from conformance.core.contracts import Contract, Cost, contracts
from conformance.core.grouping import compared
from conformance.core.verdict import CaseResult
from conformance.report.markdown import between, code, one_line, table

BEGIN, END = "<!-- table of costs: begin -->", "<!-- table of costs: end -->"
"""Marks around the table in a Markdown file."""
_NOT_COUNTED = "not counted"


@dataclass(frozen=True)
class Cell:
    """The worst count of an engine, and the result and schedule that have it."""

    cost: Cost
    result: CaseResult
    schedule: str

    @property
    def case(self) -> str:
        """The id of the case."""
        return self.result.case

    @property
    def text(self) -> str:
        """The count; with the limit if it breaks the contract."""
        if self.cost.kept:
            return f"{self.cost.count:g}"
        return f"{self.cost.count:g}, at most {self.cost.limit:g}"


@dataclass(frozen=True)
class CostTable:
    """Engines by contract: for each contract a cell for each engine, ``None`` if not counted."""

    engines: tuple[str, ...]
    versions: tuple[str, ...]
    rows: tuple[tuple[str, Contract, tuple[Cell | None, ...]], ...]

    @property
    def broken(self) -> tuple[Cell, ...]:
        """The cells of broken contracts."""
        return tuple(c for _, _, cells in self.rows for c in cells if c and not c.cost.kept)


def cost_table(results: Iterable[CaseResult]) -> CostTable | None:
    """The table; ``None`` if nothing was counted."""
    found: dict[tuple[str, str], Cell] = {}
    versions: dict[str, str] = {}
    for result, schedule, cost in _counted(results):
        cell = Cell(cost, result, schedule)
        key = (cost.contract, result.engine)
        worst = found.get(key)
        if worst is None or _excess(cell) > _excess(worst):
            found[key] = cell
        versions.setdefault(result.engine, _version(result))
    if not found:
        return None
    rows = tuple(
        (name, contract, tuple(found.get((name, engine)) for engine in versions))
        for name, contract in contracts().items()
    )
    return CostTable(tuple(versions), tuple(versions.values()), rows)


def _counted(results: Iterable[CaseResult]) -> Iterator[tuple[CaseResult, str, Cost]]:
    known = contracts()
    for result in results:
        for schedule in result.schedules:
            for cost in schedule.costs:
                if cost.contract in known:
                    yield result, schedule.name, cost


def _excess(cell: Cell) -> float:
    return cell.cost.count - cell.cost.limit


def _version(result: CaseResult) -> str:
    """The versions of the engine's library."""
    names = ("mlx-vlm", "mlx-lm")
    return next((f"{n} {result.versions[n]}" for n in names if n in result.versions), "")


def costs_markdown(found: CostTable) -> list[str]:
    """The table's lines, and the cases in which a contract is broken."""
    head = ("contract", "work", "count", *map(code, found.engines), "at most")
    rows = [
        (
            code(name),
            contract.text,
            contract.unit,
            *(_marked(cell) for cell in cells),
            f"{contract.limit:g}",
        )
        for name, contract, cells in found.rows
    ]
    pairs = zip(found.engines, found.versions, strict=True)
    lines = [*(f"- {code(name)}: {version}" for name, version in pairs), "", *table(head, rows)]
    if not found.broken:
        return lines
    broken = (f"{one_line(c.case)} {c.schedule}: {c.cost.contract} {c.text}" for c in found.broken)
    return [*lines, "", "```text", *broken, "```"]


def _marked(cell: Cell | None) -> str:
    if cell is None:
        return _NOT_COUNTED
    return cell.text if cell.cost.kept else f"**{cell.cost.count:g}**"


def with_costs(text: str, found: CostTable) -> str:
    """A Markdown text with the table between its marks; without marks, the table alone."""
    return between(text, BEGIN, END, "\n".join(costs_markdown(found)))


def moved_costs(old: CaseResult, new: CaseResult) -> tuple[str, ...]:
    """Counts that differ in another run of a case: ``positions of twentieth: 1.98 -> 1.2``."""
    before, after = (
        {(s.name, cost.contract): cost.count for s in one.schedules for cost in s.costs}
        for one in (old, new)
    )
    return tuple(
        f"{contract} of {schedule}: {was:g} -> {now:g}"
        for (schedule, contract), (was, now) in compared(before, after).changed.items()
    )
