"""``conformance explain``: why a case fails."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from conformance.app.cli.case_lookup import case_of, near
from conformance.app.cli.consoles import new_console
from conformance.app.cli.explain_text import line_of, print_explanation, print_hits
from conformance.app.cli.models_output import plain_output
from conformance.app.cli.options import (
    family_files_option,
    globs,
    json_lines,
    library_path_option,
    plugins_option,
)
from conformance.app.cli.outputs import writable
from conformance.app.cli.registries import registry_of
from conformance.core.errors import ConformanceError
from conformance.core.faults import Fault, Hits
from conformance.core.verdict import CaseId
from conformance.report.explanation import Explanation
from conformance.report.jsonl import ResultFile
from conformance.run.hosting import load_plugins
from conformance.run.registry import Registry, select
from conformance.run.selection import DTYPES
from conformance.run.session import Session
from conformance.tools.explain import encode, explain
from conformance.tools.explain.accuracy import Trial, encode_trial, trials


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
    json_file: Path | None,
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
    target = writable(json_file, "--json") if json_file else None
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
    if target is not None:
        ResultFile(target, encode).finish([found])


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
    file = ResultFile(target, encode_trial) if target is not None else None
    found: list[Trial] = []
    for engine in dict.fromkeys(fault.engine for fault in chosen):
        faults = [fault for fault in chosen if fault.engine == engine]
        for trial in trials(registry, faults, _families(registry, engine, families), dtype):
            found.append(trial)
            if file is not None:
                file.add(trial)
            console.print(line_of(trial), soft_wrap=True)
    if file is not None:
        file.finish(found)
    print_hits(console, found)


def _families(registry: Registry, engine: str, patterns: tuple[str, ...]) -> list[str]:
    """The families that options name, else the quick tier's."""
    known = registry.families_of(registry.engines[engine])
    if patterns:
        named = set(select((f.name for f in registry.families.values()), patterns, what="family"))
        return [family.name for family in known if family.name in named]
    return [family.name for family in known if family.facts.quick]
