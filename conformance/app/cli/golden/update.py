"""``conformance golden update``: stage new goldens, show the differences, accept them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Container, Sequence
from functools import partial
from pathlib import Path

import click
from rich.console import Console

from conformance.app.cli.consoles import new_console
from conformance.app.cli.golden.options import chosen_engines, golden_options
from conformance.app.cli.options import library_path_option
from conformance.app.cli.parallel import in_processes
from conformance.app.cli.registries import chosen_families, registry_of
from conformance.checks.expectations import load_expectations
from conformance.core.errors import ConformanceError
from conformance.core.family import Family
from conformance.core.library import Library
from conformance.core.output_files import sweep
from conformance.tools.golden.changes import Kind
from conformance.tools.golden.format import find_folder, golden_path, load_without
from conformance.tools.golden.staging import Proposal, accept, propose


@click.command("update")
@golden_options
@click.option("--yes", is_flag=True, help="Accept all differences without asking.")
@library_path_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    families: tuple[str, ...],
    engines: tuple[str, ...],
    folder: Path | None,
    jobs: int | None,
    family_files: tuple[Path, ...],
    yes: bool,
) -> None:
    """Make goldens from the oracle alone: stage them, show the differences, ask, write.

    Nothing is written before the differences were shown and accepted. Then each file is written
    whole or not at all; files with unchanged content stay as they are. Exit code 1 if the gate
    refused a family or you did not accept the differences.
    """
    registry = registry_of(family_files=family_files)
    chosen = chosen_families(registry, chosen_engines(registry, engines), families)
    root = find_folder(folder, must_exist=False)
    for place in {
        golden_path(root, library.name, family.name).parent for library, family in chosen
    }:
        sweep(place)  # files of an update that was killed
    without = load_without(root)
    console = new_console()
    proposals = _staged(chosen, root, jobs=jobs, console=console)
    console.print(shown(proposals, without), soft_wrap=True)
    refused = [p for p in proposals if p.refused and (p.library, p.family) not in without]
    writes = [proposal for proposal in proposals if proposal.writes]
    if writes and not (yes or _agreed(len(writes))):
        console.print("nothing was written")
        ctx.exit(1)
    written = accept(writes)
    for path in written:
        console.print(f"wrote {path}", soft_wrap=True)
    ctx.exit(1 if refused else 0)


def _staged(
    chosen: Sequence[tuple[Library, Family]], root: Path, *, jobs: int | None, console: Console
) -> list[Proposal]:
    one = partial(propose, root=root, expectations=load_expectations())
    on_crash = partial(_crashed, root=root)
    proposals: list[Proposal] = []
    with console.status("staging") as status:
        for proposal in in_processes(one, chosen, jobs=jobs, on_crash=on_crash):
            proposals.append(proposal)
            status.update(f"{len(proposals)}/{len(chosen)} families, {proposal.label}")
    return proposals


def _crashed(pair: tuple[Library, Family], *, root: Path) -> Proposal:
    library, family = pair
    path = golden_path(root, library.name, family.name)
    return Proposal(library.name, family.name, path, refused="its process crashed")


def _agreed(count: int) -> bool:
    """Ask the user at the terminal."""
    if not sys.stdin.isatty():
        raise ConformanceError(
            f"{count} files would be written: where there is no terminal, this needs --yes"
        )
    return click.confirm(f"write {count} files?")


def shown(proposals: Sequence[Proposal], without: Container[tuple[str, str]] = ()) -> str:
    """The differences as text: each family's changed requests, then the totals."""
    lines = [line for proposal in proposals for line in _lines(proposal, without)]
    counts = Counter(_total(proposal) for proposal in proposals)
    totals = ", ".join(f"{counts[name]} {name}" for name in sorted(counts))
    return "\n".join([*lines, f"{len(proposals)} families: {totals or 'none'}"])


def _total(proposal: Proposal) -> str:
    if proposal.refused:
        return "refused"
    assert proposal.changes is not None
    if proposal.changes.kind is Kind.UNCHANGED and proposal.writes:
        return "unchanged but for where they are from"
    return str(proposal.changes.kind)


def _lines(proposal: Proposal, without: Container[tuple[str, str]]) -> list[str]:
    if proposal.refused:
        known = (proposal.library, proposal.family) in without
        text = proposal.refused.removeprefix(f"{proposal.label}: ").removeprefix("no golden: ")
        return [f"{proposal.label}: refused{' (listed in without.toml)' if known else ''}: {text}"]
    assert proposal.changes is not None
    if not proposal.writes:
        return []
    if proposal.damaged:
        return [f"{proposal.label}: replaces what is no golden: {proposal.damaged}"]
    if proposal.changes.kind is Kind.NEW:
        return [f"{proposal.label}: new"]
    return proposal.lines()
