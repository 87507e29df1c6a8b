"""``conformance golden check``: are the goldens whole, up to date, and still right?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from conformance.app.cli.consoles import new_console
from conformance.app.cli.golden.options import chosen_engines, golden_options, lacking
from conformance.app.cli.options import library_path_option
from conformance.app.cli.parallel import in_processes
from conformance.app.cli.registries import chosen_families, registry_of
from conformance.checks.expectations import load_expectations
from conformance.core.family import Family
from conformance.core.library import Library
from conformance.tools.golden.checking import Checked, check, folder_problems
from conformance.tools.golden.format import find_folder, load_without


@click.command("check")
@golden_options
@click.option(
    "--files-only",
    is_flag=True,
    help="Check only the files: digests, provenance, recipes, orphans. Loads no model.",
)
@click.option(
    "--cpu",
    is_flag=True,
    help="Compute on the CPU even if there is a GPU: shows whether a difference comes from the "
    "library or only from the GPU.",
)
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
    files_only: bool,
    cpu: bool,
) -> None:
    """Check goldens against their families and the installed library.

    Each file must be whole, unedited, made with the current recipe, and belong to a family. Then
    three comparisons follow: current single streams against the golden, batches against the golden,
    and batches against current single streams. Exit code 1 if a failure is not a known defect.
    """
    if cpu:
        _use_cpu()
    registry = registry_of(family_files=family_files)
    names = chosen_engines(registry, engines)
    chosen = chosen_families(registry, names, families)
    root = find_folder(folder)
    without = load_without(root)
    console = new_console()
    one = partial(
        check,
        root=root,
        engines=[registry.engines[name] for name in names],
        files_only=files_only,
        expectations=load_expectations(),
    )
    to_check = [pair for pair in chosen if (pair[0].name, pair[1].name) not in without]
    results: list[Checked] = []
    with console.status("checking") as status:
        for found in in_processes(
            one,
            to_check,
            jobs=1 if files_only else jobs,
            on_crash=_crashed,
            prepare=_use_cpu if cpu else None,
        ):
            results.append(found)
            status.update(f"{len(results)}/{len(to_check)} goldens, {found.label}")
    libraries = {library.name for library, _ in chosen}
    problems = list(folder_problems(root, registry.families, libraries, without))
    problems += lacking(registry, engines)
    console.print(shown(results, problems), soft_wrap=True)
    ctx.exit(0 if all(found.good for found in results) and not problems else 1)


def _use_cpu() -> None:
    from conformance.backend.device import use_cpu  # noqa: PLC0415 - imports mlx

    use_cpu()


def _crashed(pair: tuple[Library, Family]) -> Checked:
    library, family = pair
    return Checked(library.name, family.name, ("its process crashed",))


def shown(results: Sequence[Checked], problems: Sequence[str]) -> str:
    """The failures of each family, then the totals."""
    lines = [*problems, *(line for found in results for line in found.lines())]
    left_out = sum(bool(found.not_playable) for found in results)
    good = sum(found.good for found in results) - left_out
    known = sum(bool(found.known) and found.good for found in results)
    also = f" ({known} of them with known defects of batches)" if known else ""
    unplayed = f", {left_out} not playable here" if left_out else ""
    return "\n".join([*lines, f"{len(results)} goldens: {good} hold{also}{unplayed}"])
