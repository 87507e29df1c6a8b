"""``conformance golden export``: vectors for engines that are none of our adapters."""

from __future__ import annotations

from pathlib import Path

import click

from conformance.app.cli.options import family_files_option, globs, library_path_option
from conformance.app.cli.outputs import writable
from conformance.app.cli.printing import say
from conformance.app.cli.registries import registry_of
from conformance.run.selection import DEFAULT_ENGINES, DTYPES, Selection, cases
from conformance.run.session import Session
from conformance.tools.vectors.exporting import check_new, export


@click.command("export")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@globs("family", "Families; default: all.")
@globs("scenario", "Scenarios; default: all.")
@click.option(
    "--engine",
    type=click.Choice(DEFAULT_ENGINES),
    default=DEFAULT_ENGINES[0],
    show_default=True,
    help="The library whose single streams are the expected output.",
)
@click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    default=DTYPES[0],
    show_default=True,
    help="Of weights and goldens. The noise is measured for it.",
)
@family_files_option
@library_path_option
def command(
    *,
    folder: Path,
    families: tuple[str, ...],
    scenarios: tuple[str, ...],
    engine: str,
    dtype: str,
    family_files: tuple[Path, ...],
) -> None:
    """Write checkpoints, schedules and goldens to DIR, for any program to play.

    `conformance golden judge` judges the trace that it writes; docs/vectors.md says what is in the
    files. DIR must not exist: it appears whole, or not at all.
    """
    folder = writable(folder, "DIR")
    check_new(folder)  # before all plugins are loaded
    registry = registry_of(family_files=family_files)
    selection = Selection((engine,), families, scenarios, (dtype,))
    manifest = export(Session(registry), cases(registry, selection), folder, report=say)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    say(f"{folder}: {len(manifest.families)} families, {size / 1e6:.1f} MB")
