"""The report of a new family: as data, and as Markdown."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from conformance.core.verdict import CaseResult
from conformance.tools.new_family.draft import Decision, Unshrunk

MOST_SHOWN = 3
"""Failing rungs to show in full: later failures mostly follow from the first."""

NOT_RUN = "not run, as a rung below it fails"
_LONGEST = 60


class BatchInput(msgspec.Struct, frozen=True):
    """One input, and the first rung in which changing it changed an output.

    Attributes:
        rung: empty if there is none.
        given: whether any cache of this model has the input.
        read: the number of rungs in which the model read it where rows differ in it.
    """

    name: str
    rung: str = ""
    given: bool = True
    read: int = 0

    def __str__(self) -> str:
        if self.rung:
            return f"{self.name} ({self.rung})"
        if not self.given:
            return f"{self.name} (no cache of this model has it)"
        how = f"changed in {self.read} rungs" if self.read else "the model never reads it"
        return f"{self.name} ({how})"


class Adopted(msgspec.Struct, frozen=True):
    """A new family, and everything that was found out about it.

    Attributes:
        source: the path of the full-size config or the module.
        kinds: the number of kinds listed at each place in the full-size model.
        parameters: of the full-size model, and of the tiny one.
        lost: kinds that the tiny model lacks, by place; empty if it has them all.
        ratio: its weakest signal over noise; ``None`` if it could not be measured.
        weakest: the smallest signal.
        inputs: the inputs of a batch's rows, and the first rung in which a change of each showed;
            empty without the ladder.
        insensitive: why the family proves little; empty if it is sensitive enough.
        results: of the ladder's rungs, in order.
        left_out: the rungs that were not run, as one below them failed.
    """

    name: str
    source: str
    library: str
    module: str
    caches: tuple[str, ...]
    positions: str
    states: tuple[str, ...]
    kinds: dict[str, int]
    lost: dict[str, list[str]]
    parameters: tuple[int, int]
    decisions: tuple[Decision, ...]
    unshrunk: tuple[Unshrunk, ...]
    notes: tuple[str, ...]
    ratio: float | None
    weakest: str
    insensitive: str = msgspec.field(name="deaf")  # the name in published reports
    results: tuple[CaseResult, ...]
    inputs: tuple[BatchInput, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def failures(self) -> tuple[CaseResult, ...]:
        """Rungs whose verdict is not the expected one."""
        return tuple(result for result in self.results if not result.expected)

    @property
    def good(self) -> bool:
        """Whether no kind was lost, the family is sensitive, and every rung is as expected."""
        return not (self.lost or self.insensitive or self.failures)


def as_json(adopted: Adopted) -> str:
    """The report as one JSON object."""
    return msgspec.json.format(msgspec.json.encode(adopted), indent=2).decode()


def as_markdown(adopted: Adopted) -> str:
    """A report to keep next to the family's file."""
    lines = [f"# {adopted.name}", ""]
    lines += [f"- {line}" for line in facts_of(adopted)]
    lines += ["", "## Fields", "", "| field | from | to | rule | why |", "|---|---|---|---|---|"]
    lines += [
        f"| {d.field} | {shown(d.before)} | {shown(d.after)} | {d.rule} | {d.why} |"
        for d in adopted.decisions
    ]
    lines += ["", "## Not shrunk", ""]
    lines += [f"- {u.field} ({shown(u.value)}): {u.why}" for u in adopted.unshrunk] or ["Nothing."]
    if adopted.results:
        lines += ["", "## Ladder", "", "| rung | verdict | known defect |", "|---|---|---|"]
        lines += [
            f"| {r.scenario} | {verdict_text(r)} | {r.known or ''} |" for r in adopted.results
        ]
        lines += [f"| {name} | {NOT_RUN} | |" for name in adopted.left_out]
    return "\n".join(lines) + "\n"


def facts_of(adopted: Adopted) -> list[str]:
    """Composition of the model and assumptions, one sentence each."""
    full, tiny = adopted.parameters
    made_of = ", ".join((*adopted.caches, adopted.positions, *adopted.states))
    lines = [
        f"made from {adopted.source} by {adopted.library}, module {adopted.module}",
        f"made of {made_of}",
        f"{tiny:,} parameters of {full:,}",
        *(f"{place}: {_kept(adopted, place, count)}" for place, count in adopted.kinds.items()),
        *adopted.notes,
    ]
    if adopted.ratio is not None:
        lines.append(f"weakest signal / noise: {adopted.ratio:.3g} ({adopted.weakest})")
    lines += _inputs(adopted)
    return lines + ([adopted.insensitive] if adopted.insensitive else [])


def _inputs(adopted: Adopted) -> list[str]:
    """The inputs that matter, with the first rung that shows it, and the inputs that do not.

    They are measured in the rungs that pass: as long as one fails, a model that is mended may read
    what it does not read yet.
    """
    matter = ", ".join(str(one) for one in adopted.inputs if one.rung)
    unseen = ", ".join(str(one) for one in adopted.inputs if not one.rung)
    lines = [f"inputs that matter, from the rung: {matter}"] if matter else []
    if unseen and adopted.failures:
        return [*lines, "which inputs do not matter is said once all rungs pass"]
    return lines + ([f"no rung made these matter: {unseen}"] if unseen else [])


def _kept(adopted: Adopted, place: str, count: int) -> str:
    kinds = f"{count} kind{'s' if count > 1 else ''}"
    lost = adopted.lost.get(place)
    return f"{kinds}, all kept" if not lost else f"{kinds}, {len(lost)} LOST: {shown(lost[0])}"


def verdict_text(result: CaseResult) -> str:
    """A verdict, marked if it is not the expected one."""
    return str(result.verdict) if result.expected else f"{result.verdict}, NOT EXPECTED"


def shown(value: Any) -> str:
    """A value as text of limited length."""
    text = "-" if value is None else json.dumps(value, default=str)
    text = text.replace("|", "/")
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
