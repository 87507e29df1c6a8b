"""``conformance golden export``: write vectors for engines without an adapter here."""

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
@globs("family", "Families to export. Default: all.")
@globs("scenario", "Scenarios to export. Default: all.")
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
    help="Dtype of weights and goldens; the noise is measured in it, too.",
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
    """Write checkpoints, schedules and goldens to DIR, for an engine in any language.

    The engine runs the schedules and writes a trace, which `conformance golden judge` judges;
    docs/vectors.md describes the files. DIR must not exist: it is written whole, or not at all.
    """
    folder = writable(folder, "DIR")
    check_new(folder)  # before the plugins are loaded
    registry = registry_of(family_files=family_files)
    selection = Selection((engine,), families, scenarios, (dtype,))
    manifest = export(Session(registry), cases(registry, selection), folder, report=say)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    say(f"{folder}: {len(manifest.families)} families, {size / 1e6:.1f} MB")
