"""``conformance new family``: shrink a new model to a family file, calibrate and check it."""

from __future__ import annotations

import dataclasses
import filecmp
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console

from conformance.app.cli.auto_explain import FIRST_SECONDS, with_explanations
from conformance.app.cli.consoles import new_console
from conformance.app.cli.options import library_path_option
from conformance.app.cli.outputs import writable
from conformance.app.cli.parallel import in_processes
from conformance.app.cli.printing import say
from conformance.core.errors import AdoptionError, ConformanceError
from conformance.core.invocation import command_about
from conformance.report import Outcome, failure_message
from conformance.scenarios import LADDER
from conformance.tools.new_family.making import publish, remove, workplace
from conformance.tools.new_family.report import (
    MOST_SHOWN,
    NOT_RUN,
    Adopted,
    as_json,
    as_markdown,
    facts_of,
    shown,
    verdict_text,
)
from conformance.tools.new_family.source import Source, read_source
from conformance.tools.new_family.validation import adopt


@click.command("family")
@click.argument("path", type=click.Path(path_type=Path), metavar="PATH")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The family file to write. Default: ./NAME.json, with the NAME in PATH.",
)
@click.option(
    "--library",
    metavar="NAME",
    help="Build it with this library, mlx_lm or mlx_vlm. Default: mlx_vlm for a model with images "
    "or audio, else mlx_lm.",
)
@click.option(
    "--trust-remote-code",
    is_flag=True,
    help="Allow running a Python file that the config names. A module given as PATH always runs.",
)
@click.option("--force", is_flag=True, help="Replace an existing family file and its report.")
@click.option("--no-ladder", is_flag=True, help="Only check that it decodes; skip the ladder.")
@click.option("--json", "as_data", is_flag=True, help="Print the whole report as JSON.")
@library_path_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    path: Path,
    out: Path | None,
    library: str | None,
    trust_remote_code: bool,
    force: bool,
    no_ladder: bool,
    as_data: bool,
) -> None:
    """Make a family file from a new model and check it.

    PATH is a full-size config.json, a folder with one (and its processor's files), or a Python
    module with Model and ModelArgs like mlx-lm's, which is imported. The config is shrunk but keeps
    every kind of layer, the weights are calibrated, and the ladder is run. The command writes the
    family file and NAME.report.md, which explains each field. Exit code: 0 if every rung passes, 1
    if not (both files are still written), 2 if the model can't be built (nothing is written).
    """
    start = time.perf_counter()
    source = read_source(path, trusted=trust_remote_code)
    target = writable(out or Path(f"{source.name}.json"), "--out")
    if target.suffix != ".json":
        raise AdoptionError(f"--out: {target.name} must end in .json, as family files do")
    folder = workplace(target, force=force)
    try:
        work = _Work(dataclasses.replace(source, name=target.stem), folder, library, not no_ladder)
        console = new_console(stderr=as_data)
        with console.status("shrinking, calibrating, running the ladder"):
            adopted = _adopted(work)
        _publish(adopted, source, folder, target, force=force)
    finally:
        remove(folder)
    if as_data:
        say(as_json(adopted))
    else:
        _print(console, adopted, source, target, time.perf_counter() - start)
    ctx.exit(0 if adopted.good else 1)


@dataclass(frozen=True)
class _Work:
    source: Source
    folder: Path
    library: str | None
    ladder: bool


def _adopted(work: _Work) -> Adopted:
    """Make the family in its own process, which the model may crash."""
    (found,) = in_processes(_adopt, [work], jobs=2, on_crash=lambda _: None)
    if found is None:
        raise AdoptionError(
            f"{work.source.path}: its process crashed while the tiny model was built or run"
        )
    if isinstance(found, ConformanceError):
        raise found
    return found


def _adopt(work: _Work) -> Adopted | ConformanceError | None:
    try:
        return adopt(work.source, work.folder, library=work.library, ladder=work.ladder)
    except ConformanceError as error:
        return error


def _publish(adopted: Adopted, source: Source, folder: Path, target: Path, *, force: bool) -> None:
    report = folder / f"{adopted.name}.report.md"
    report.write_text(as_markdown(adopted), encoding="utf-8")
    others = {report: target.with_name(report.name)}
    if source.model_file is not None:
        place = target.with_name(source.model_file.name)
        same = place.exists() and filecmp.cmp(place, source.model_file, shallow=False)
        if place.exists() and not (same or force):
            raise AdoptionError(
                f"{place}: another file of that name is there already; --force replaces it"
            )
        if not same:
            others[folder / place.name] = place
    publish(folder, target, others)


def _print(
    console: Console, adopted: Adopted, source: Source, target: Path, seconds: float
) -> None:
    write = console.print
    model = source.model_file
    copy = target.with_name(model.name) if model is not None else None
    if copy is not None and model is not None and copy.exists() and copy.samefile(model):
        copy = None
    write(f"{target}", soft_wrap=True)
    if copy is not None:
        write(
            f"  runs import the copy {copy}: after a change of {model}, call this with --force",
            soft_wrap=True,
        )
    for line in facts_of(adopted):
        write(f"  {line}", soft_wrap=True)
    write(f"  {len(adopted.decisions)} fields made small; {adopted.name}.report.md says why")
    for left in adopted.unshrunk:
        line = f"  not shrunk: {left.field} ({shown(left.value)}): {left.why}"
        write(line, soft_wrap=True)
    for result in adopted.results:
        known = f" (known: {result.known})" if result.known else ""
        line = f"  {result.scenario:<16} {verdict_text(result)}{known}"
        write(line, soft_wrap=True)
    for name in adopted.left_out:
        write(f"  {name:<16} {NOT_RUN}")
    options = ("--family-file", str(target))
    if adopted.failures:
        write()
        write(_first_finding(adopted, options), soft_wrap=True)
    for result in adopted.failures[:MOST_SHOWN]:
        write()
        write(failure_message(result, options=options), soft_wrap=True)
    if len(adopted.failures) > MOST_SHOWN:
        write(f"\nand {len(adopted.failures) - MOST_SHOWN} more rungs that fail")
    write("\nNext:")
    for command in _next(adopted, options):
        write(f"  {command}", soft_wrap=True)
    write()
    write(_verdict(adopted, seconds), soft_wrap=True)


def _first_finding(adopted: Adopted, options: tuple[str, ...]) -> str:
    """The finding on the lowest bad rung, explained if that takes no longer than in a run."""
    scenarios = {scenario.name: scenario for scenario in LADDER}
    found = with_explanations(
        Outcome(adopted.results, tuple(scenarios)),
        scenarios,
        seconds=FIRST_SECONDS,
        jobs=1,
        options=options,
        most=1,
    )
    return found.cascades[0].sentence


def _next(adopted: Adopted, options: tuple[str, ...]) -> Iterator[str]:
    """The commands to go on with."""
    if not adopted.failures:
        yield shlex.join(["conformance", "run", *options, "--family", adopted.name])
        return
    case = adopted.failures[0].case
    yield from (command_about(name, case, options) for name in ("show", "explain", "repro"))


def _verdict(adopted: Adopted, seconds: float) -> str:
    if adopted.good:
        return f"OK: {len(adopted.results)} rungs, all as expected, in {seconds:.0f} s"
    reasons = [f"{len(adopted.failures)} of {len(adopted.results)} rungs fail"]
    reasons = reasons if adopted.failures else []
    reasons += ["kinds of layers were lost"] if adopted.lost else []
    reasons += [adopted.insensitive] if adopted.insensitive else []
    return f"FAILED: {'; '.join(reasons)}, in {seconds:.0f} s"
