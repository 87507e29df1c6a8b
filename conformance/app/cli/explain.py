"""``conformance explain``: why a case fails."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from conformance.app.cli.consoles import new_console, new_table
from conformance.app.cli.models_output import plain_output
from conformance.app.cli.options import (
    family_files_option,
    globs,
    json_lines,
    library_path_option,
    plugins_option,
)
from conformance.app.cli.registries import case_of, named_families, near, registry_of
from conformance.core.errors import ConformanceError
from conformance.core.faults import Fault, Hits
from conformance.core.verdict import CaseId
from conformance.report.explanation import Explanation, Where
from conformance.report.jsonl import ResultFile
from conformance.run.hosting import load_plugins
from conformance.run.registry import Registry, select
from conformance.run.selection import DTYPES
from conformance.run.session import Session
from conformance.tools.explain import explain
from conformance.tools.explain.accuracy import Trial, trials


@click.command("explain")
@click.argument("case_id", required=False)
@click.option(
    "--schedule",
    default="",
    metavar="NAME",
    help="Explain this schedule of the case. Default: the first that fails.",
)
@click.option(
    "--fault",
    "fault_key",
    metavar="KEY",
    help="Put this fault in, for example mlx_lm/B4.offset-of-row-0.",
)
@click.option(
    "--faults",
    "patterns",
    multiple=True,
    metavar="GLOB",
    help="Without a case: explain each of these faults in the first quick family that "
    "shows it, and print how often the explanation names the place of the defect.",
)
@globs("family", "Explain only in these families. For --faults.")
@click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    default="float32",
    show_default=True,
    help="Explain cases in this dtype. For --faults.",
)
@json_lines("Also write JSON, with the errors along layers and steps: one line for each case.")
@family_files_option
@library_path_option
@plugins_option
def command(
    *,
    case_id: str | None,
    schedule: str,
    fault_key: str | None,
    patterns: tuple[str, ...],
    families: tuple[str, ...],
    dtype: str,
    target: Path | None,
    family_files: tuple[Path, ...],
    plugins: tuple[str, ...],
) -> None:
    """Explain why a case fails, for example mlx_lm/llama/ragged/float32/0.

    Shows the ingredients that the failure needs; the first module, layer, row and position that
    differ from the single stream; the first wrong cache entry; whether the model or the engine is
    wrong; and the likely class of defect. Exit code 2 if the case does not fail.
    """
    if bool(case_id) == bool(patterns) or (schedule and patterns):
        raise ConformanceError("explain either one CASE_ID, or defects by --faults")
    registry = registry_of(load_plugins(plugins), family_files=family_files, faults=True)
    console = new_console()
    if patterns:
        _hits(registry, patterns, families, dtype, console=console, target=target)
        return
    assert case_id is not None
    case = case_of(registry, case_id)
    with plain_output():
        found = _explain(registry, case, fault_key, schedule)
    print_explanation(console, found)
    ResultFile(target).finish([found])


def _explain(registry: Registry, case: CaseId, fault_key: str | None, schedule: str) -> Explanation:
    session = Session(registry)
    if fault_key is None:
        return explain(session, case, schedule=schedule)
    fault = known_fault(registry, fault_key, case)
    return explain(
        session,
        case,
        around=lambda _: fault.inject(Hits()),
        fault=fault.key,
        baseline=session.run(case),
        schedule=schedule,
    )


def known_fault(registry: Registry, key: str, case: CaseId) -> Fault:
    """The fault with this key, which must apply to the case's engine.

    Raises:
        ConformanceError: there is no such fault, or it applies to another engine.
    """
    if key not in registry.faults:
        raise ConformanceError(f"there is no fault {key}{near(key, registry.faults)}")
    fault = registry.faults[key]
    if fault.engine != case.engine:
        raise ConformanceError(
            f"{key} is put under engine {fault.engine}, and the case is played by {case.engine}"
        )
    return fault


def _hits(
    registry: Registry,
    patterns: tuple[str, ...],
    families: tuple[str, ...],
    dtype: str,
    *,
    console: Console,
    target: Path | None,
) -> None:
    keys = [glob if "/" in glob else f"*/{glob}" for glob in patterns]
    chosen = [registry.faults[key] for key in select(registry.faults, keys, what="fault")]
    file = ResultFile(target)
    found: list[Trial] = []
    for engine in dict.fromkeys(fault.engine for fault in chosen):
        faults = [fault for fault in chosen if fault.engine == engine]
        for trial in trials(registry, faults, _families(registry, engine, families), dtype):
            found.append(trial)
            file.add(trial)
            console.print(line_of(trial), soft_wrap=True)
    file.finish(found)
    print_hits(console, found)


def _families(registry: Registry, engine: str, patterns: tuple[str, ...]) -> list[str]:
    """The families that options name, else the quick tier's."""
    found = named_families(registry, engine, patterns)
    return [family.name for family in found if patterns or family.facts.quick]


# Prints explanations, and how often they were right, as text and tables --------------------------

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
    table = new_table("", "ingredient", "", "without it", "how")
    for item in found.ingredients:
        table.add_row(item.name, item.needed.value, item.verdict, item.how)
    return table


def _layers(found: Explanation) -> Table:
    """One bar for each layer, scaled to the largest error."""
    table = new_table("\nerror along the layers, in that call", "layer", "relative", "noise", "")
    largest = max((layer.error or 0.0 for layer in found.layers), default=0.0)
    for layer in found.layers:
        share = 1.0 if layer.error is None else layer.error / largest if largest else 0.0
        size = "not finite" if layer.error is None else f"{layer.error:.2g}"
        table.add_row(layer.path, size, f"{layer.noise:.1g}", "#" * round(share * _WIDTH))
    return table


def _relatives(found: Explanation) -> Table:
    table = new_table("\nlike", "class", "score", "known from", "defects")
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
