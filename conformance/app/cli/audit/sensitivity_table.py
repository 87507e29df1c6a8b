"""The sensitivity of families as a table and as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.table import Table
from rich.text import Text

from conformance.core.sensitivity import RATIO_NEEDED, Sensitivity

KINDS = ("drop", "shift", "slot", "media")


@dataclass(frozen=True)
class Measured:
    """One family's measurement.

    Attributes:
        sensitivity: ``None`` where the family could not be measured.
        problem: the reason, in the words of the library or of this project.
        unsupported: whether the library cannot run the family here.
        written: whether a better recipe was found and put into the family's file.
    """

    family: str
    sensitivity: Sensitivity | None
    problem: str = ""
    unsupported: bool = False
    written: bool = False

    @property
    def good(self) -> bool:
        """Whether the family is sensitive enough, or can't be run here at all."""
        return self.sensitivity.sensitive if self.sensitivity else self.unsupported

    @property
    def status(self) -> str:
        """A short text for the table."""
        if self.sensitivity is None:
            return ("unsupported: " if self.unsupported else "failed: ") + self.problem
        notes = [
            "" if self.sensitivity.sensitive else "INSENSITIVE",
            "" if self.sensitivity.varied else "dull stream",
            "single stream disagrees" if self.sensitivity.disagreements else "",
            "recipe written" if self.written else "",
        ]
        return ", ".join(note for note in notes if note) or "ok"


def table(measured: Sequence[Measured]) -> Table:
    """Each family's smallest signal for each kind of small defect, its noise and the ratio."""
    found = Table(box=None, pad_edge=False)
    found.add_column("family", no_wrap=True)
    for name in (*KINDS, "noise", "ratio", "tokens"):
        found.add_column(name, justify="right", no_wrap=True)
    found.add_column("", overflow="fold")
    for item in measured:
        style = "" if item.good else "bold red"
        found.add_row(item.family, *_numbers(item.sensitivity), Text(item.status, style=style))
    return found


def verdict(measured: Sequence[Measured]) -> str:
    """A summary sentence; names the families that are not good enough."""
    bad = [item.family for item in measured if not item.good]
    unsupported = sum(item.unsupported for item in measured)
    aside = f" ({unsupported} unsupported here)" if unsupported else ""
    needed = f"{RATIO_NEEDED:g} times their noise"
    if not bad:
        return f"OK: {len(measured) - unsupported} families move by at least {needed}{aside}"
    return (
        f"FAILED: {len(bad)} of {len(measured)} families move by less than {needed}, or could not "
        f"be measured{aside}: {', '.join(bad)}"
    )


def as_line(item: Measured, *, dtype: str, seed: int) -> str:
    """One line of JSON: all signals and roundings of a family, in nats."""
    found = item.sensitivity
    line = {"family": item.family, "dtype": dtype, "seed": seed, "status": item.status}
    numbers = {"ratio": found.ratio, "noise": found.noise, **asdict(found)} if found else {}
    return json.dumps({**line, **numbers})


def _numbers(found: Sensitivity | None) -> list[str]:
    if found is None:
        return [""] * (len(KINDS) + 3)
    least = [
        min((signal.nats for signal in found.signals if signal.kind == kind), default=None)
        for kind in KINDS
    ]
    signals = ["-" if nats is None else f"{nats:.2g}" for nats in least]
    return [*signals, f"{found.noise:.1g}", f"{found.ratio:.0f}", str(found.distinct)]
