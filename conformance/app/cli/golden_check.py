"""``conformance golden check``: are the goldens whole, of today's recipes, and still true?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click
from rich.console import Console

from conformance.app.cli.golden import chosen_engines, chosen_families, golden_options
from conformance.app.cli.parallel import in_processes
from conformance.checks.expectations import load_expectations
from conformance.core.family import Family
from conformance.core.library import Library
from conformance.run.registry import build_registry
from conformance.tools.golden.checking import Checked, check, folder_problems
from conformance.tools.golden.difference import Difference
from conformance.tools.golden.exemptions import load_without
from conformance.tools.golden.layout import find_folder


@click.command("check")
@golden_options
@click.option(
    "--files-only",
    is_flag=True,
    help="Look at the files alone: digests, provenance, recipes, orphans. Loads no model.",
)
@click.pass_context
def command(
    ctx: click.Context,
    *,
    families: tuple[str, ...],
    engines: tuple[str, ...],
    folder: Path | None,
    jobs: int | None,
    family_files: tuple[Path, ...],
    files_only: bool,
) -> None:
    """Hold goldens against their families and against the library of today.

    Each file must be whole, unedited, of today's recipe, and belong to a family. Then three
    comparisons: the single stream now against the golden, batches against the golden, batches
    against the single stream now. Exit code 1 if anything fails that no expectation explains.
    """
    registry = build_registry(family_files=family_files)
    names = chosen_engines(registry, engines)
    chosen = chosen_families(registry, names, families)
    root = find_folder(folder)
    without = load_without(root)
    console = Console(highlight=False)
    one = partial(
        check,
        root=root,
        engines=[registry.engines[name] for name in names],
        files_only=files_only,
        expectations=load_expectations(),
    )
    wanted = [pair for pair in chosen if (pair[0].name, pair[1].name) not in without]
    results: list[Checked] = []
    with console.status("checking") as status:
        for found in in_processes(one, wanted, jobs=1 if files_only else jobs, died=_dead):
            results.append(found)
            status.update(f"{len(results)}/{len(wanted)} goldens, {found.label}")
    libraries = {library.name for library, _ in chosen}
    problems = list(folder_problems(root, registry.families, libraries, without))
    console.print(told(results, problems), soft_wrap=True, markup=False)
    ctx.exit(0 if all(found.good for found in results) and not problems else 1)


def _dead(pair: tuple[Library, Family]) -> Checked:
    library, family = pair
    return Checked(library.name, family.name, ("its process died",))


def told(results: Sequence[Checked], problems: Sequence[str]) -> str:
    """What fails, family by family, then the totals."""
    lines = list(problems)
    for found in results:
        lines += found.problems
        if found.unknown:
            lines.append(f"{found.label}: {found.meaning}")
            lines += [f"    {text}" for text in briefly(found.unknown)]
    good = sum(found.good for found in results)
    known = sum(bool(found.differences) and found.good for found in results)
    shown = f" ({known} of them with known defects of batches)" if known else ""
    return "\n".join([*lines, f"{len(results)} goldens: {good} hold{shown}"])


def briefly(differences: Sequence[Difference]) -> list[str]:
    """The first difference of each comparison of each batch, and how many more there are."""
    firsts: dict[tuple[str, str, str], list[Difference]] = {}
    for found in differences:
        firsts.setdefault((found.part, found.engine, found.schedule), []).append(found)
    return [
        f"{group[0]}" + (f"; and {len(group) - 1} more requests" if len(group) > 1 else "")
        for group in firsts.values()
    ]
