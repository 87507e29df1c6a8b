"""Prints explanations, and how often they were right, as text and tables."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from conformance.report.explanation import Explanation, Where
from conformance.tools.explain.accuracy import Trial

_WIDTH = 30  # characters of the longest bar


def print_explanation(console: Console, found: Explanation) -> None:
    """Print the whole explanation of a case."""
    fault = f" with {found.fault}" if found.fault else ""
    text = Text(found.case, "bold")
    console.print(text.append(f"{fault}: {found.verdict} in {found.schedule}", "not bold"))
    for line in (
        found.what,
        "",
        f"begins at   {_place(found.where)}",
        f"            {found.where.detail}" if found.where.detail else "",
        f"cache       {_place(found.entry) if found.entry else 'no entry differs'}",
        f"            {found.entry.detail}" if found.entry else "",
        f"opinion     {found.opinion}",
        f"needs       {', '.join(found.needed) or 'no ingredient by itself'}{_suffices(found)}",
        "",
    ):
        console.print(line, soft_wrap=True)
    if found.ingredients:
        console.print(_ingredients(found))
    if found.layers:
        console.print(_layers(found))
    if found.relatives:
        console.print(_relatives(found))
    console.print(f"{found.seconds:.1f} s")


def _suffices(found: Explanation) -> str:
    if found.suffices is None:
        return ""
    if found.suffices:
        return "; with only these it fails"
    return "; with only these it does not fail: others can stand for each other"


def _place(where: Where) -> str:
    known = {
        "request": where.request_id,
        "row": where.row,
        "position": where.position,
        "step": where.step,
        "call": where.call,
    }
    parts = [f"{name} {value}" for name, value in known.items() if value is not None]
    error = f", relative error {where.error:.2g}" if where.error is not None else ""
    return f"{where.site}: {', '.join(parts)}{error}" if parts else where.site


def _ingredients(found: Explanation) -> Table:
    table = _table("", "ingredient", "", "without it", "how")
    for item in found.ingredients:
        table.add_row(item.name, item.needed.value, item.verdict, item.how)
    return table


def _layers(found: Explanation) -> Table:
    """One bar for each layer, scaled to the largest error."""
    table = _table("\nerror along the layers, in that call", "layer", "relative", "noise", "")
    largest = max((layer.error or 0.0 for layer in found.layers), default=0.0)
    for layer in found.layers:
        share = 1.0 if layer.error is None else layer.error / largest if largest else 0.0
        size = "not finite" if layer.error is None else f"{layer.error:.2g}"
        table.add_row(layer.path, size, f"{layer.noise:.1g}", "#" * round(share * _WIDTH))
    return table


def _relatives(found: Explanation) -> Table:
    table = _table("\nlike", "class", "score", "known from", "defects")
    for relative in found.relatives:
        sources, faults = ", ".join(relative.sources[:3]), ", ".join(relative.faults[:3])
        table.add_row(relative.fault_class, f"{relative.score:g}", sources, faults)
    return table


def line_of(trial: Trial) -> str:
    """One line for a fault that was put in."""
    if trial.where is None:
        return f"{trial.fault}: not explained: {trial.why}"
    verdict = {True: "right", False: "WRONG", None: "has no place"}[trial.hit]
    wanted = f", wanted {trial.wanted}" if trial.hit is False else ""
    return f"{trial.fault}: {verdict}: {trial.where.site} ({trial.family}/{trial.scenario}){wanted}"


def print_hits(console: Console, trials: Sequence[Trial]) -> None:
    """How often place and class were right, by engine, and how long an explanation took.

    A fault without an explanation, or whose explanation raised an error, counts as wrong.
    """
    for engine, dtype in dict.fromkeys((t.fault.split("/")[0], t.dtype) for t in trials):
        mine = [t for t in trials if t.fault.startswith(f"{engine}/") and t.dtype == dtype]
        placed = [t for t in mine if t.wanted]
        near = [t for t in placed if t.hit or t.entry_hit]
        seconds = [t.seconds for t in mine if t.where is not None] or [0.0]
        for line in (
            f"{engine} in {dtype}: {len(mine)} defects, {len(placed)} of them have a place",
            f"  the place that is named is right: {_share([t for t in placed if t.hit], placed)}; "
            f"it or the first cache entry: {_share(near, placed)}",
            "  the class is the first that is named: "
            f"{_share([t for t in mine if t.class_hit == 1], mine)}; "
            f"among those named: {_share([t for t in mine if t.class_hit], mine)}",
            f"  seconds an explanation: median {statistics.median(seconds):.1f}, "
            f"worst {max(seconds):.1f}",
        ):
            console.print(line, soft_wrap=True)


def _share(some: Sequence[object], every: Sequence[object]) -> str:
    share = f" ({len(some) / len(every):.0%})" if every else ""
    return f"{len(some)} of {len(every)}{share}"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for name in columns:
        table.add_column(name)
    return table
