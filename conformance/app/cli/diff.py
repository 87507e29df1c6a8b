"""``conformance diff``: compare the results of two runs."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from conformance.app.cli.consoles import new_console
from conformance.app.cli.options import EXISTING_FILE, FACTOR
from conformance.app.cli.outputs import reads, writable
from conformance.app.cli.printing import say
from conformance.core.errors import ResultError
from conformance.report.comparison import NOISE_FACTOR, Comparison, Kind, compare, markdown, summary
from conformance.report.joining import lacking_shards
from conformance.report.jsonl import RunFile, read_run, write_lines

# Rows of each kind that the terminal shows; the Markdown file has more.
_MOST = 40
_STYLES = {Kind.FAILING: "red", Kind.WORSE: "red", Kind.LOST: "yellow", Kind.FIXED: "green"}


@click.command("diff")
@click.argument("results_a", type=EXISTING_FILE)
@click.argument("results_b", type=EXISTING_FILE)
@click.option(
    "--markdown",
    "markdown_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the comparison for a pull request, changed cells first, less than 65 kB.",
)
@click.option(
    "--noise-factor",
    type=FACTOR,
    default=NOISE_FACTOR,
    show_default=True,
    help="Report noise that changed by this factor.",
)
@click.option("--common", is_flag=True, help="Compare only the cases that both files have.")
@click.pass_context
def command(
    ctx: click.Context,
    *,
    results_a: Path,
    results_b: Path,
    markdown_file: Path | None,
    noise_factor: float,
    common: bool,
) -> None:
    """Compare two result files of `conformance run --json`, the older one first.

    Exit code 1 if something is worse: a case newly fails, has a worse verdict, is no longer run or
    proves less (fewer schedules, witnesses or counts), or RESULTS_B has fewer results than
    planned cases.
    """
    reads((results_a, results_b))
    out = writable(markdown_file, "--markdown") if markdown_file is not None else None
    before, after = read_run(results_a), read_run(results_b)
    for path, run in ((results_a, before), (results_b, after)):
        if not run.results:
            raise ResultError(f"no results in {path}")
        if run.missing:
            say(f"{path} is incomplete: {run.missing} planned cases have no result")
        if run.header and (lacking := lacking_shards(run.header)):
            say(f"{path} is {lacking}")
    found = compare(
        before.results,
        after.results,
        noise_factor=noise_factor,
        common=common,
        missing=after.missing,
    )
    _print(new_console(), found)
    if out is not None:
        write_lines(out, markdown(found).splitlines())
    ctx.exit(1 if found.regressed or _shard(after) not in ("", _shard(before)) else 0)


def _shard(run: RunFile) -> str:
    return run.header.shard if run.header else ""


def _print(console: Console, found: Comparison) -> None:
    for name, (before, after) in found.versions.items():
        console.print(f"{name}: {before} -> {after}", soft_wrap=True)
    for kind in Kind:
        changes = found.of(kind)
        if not changes:
            continue
        table = Table(
            title=f"{kind} ({len(changes)})", title_justify="left", box=None, pad_edge=False
        )
        table.add_column("case", style=_STYLES.get(kind, ""), overflow="fold")
        table.add_column("what", overflow="fold")
        for change in changes[:_MOST]:
            table.add_row(change.result.case, change.text)
        if len(changes) > _MOST:
            table.add_row(f"and {len(changes) - _MOST} more", "")
        console.print(table)
    console.print(summary(found), soft_wrap=True)
