"""``conformance report``: results as pages."""

from __future__ import annotations

from pathlib import Path

import click

from conformance.app.cli.choices import EXISTING_FILE, EXISTING_FOLDER, family_files_option
from conformance.report.jsonl import read_results
from conformance.report.pages.extras import read_explanations, read_scripts
from conformance.report.pages.material import Material, merged
from conformance.report.pages.place import check_place
from conformance.report.pages.site import write_site
from conformance.report.trials import read_trials
from conformance.run.coverage import take_inventory
from conformance.run.registry import build_registry


@click.command("report")
@click.argument("results", type=EXISTING_FILE, nargs=-1, required=True)
@click.option(
    "--html",
    "folder",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Write pages there that open from disk, index.html first. A report that is there already "
    "is replaced.",
)
@click.option(
    "--power",
    "power_files",
    type=EXISTING_FILE,
    multiple=True,
    metavar="FILE",
    help="Add what `conformance power --json` wrote; may be repeated.",
)
@click.option(
    "--before",
    type=EXISTING_FILE,
    multiple=True,
    metavar="FILE",
    help="Add a comparison with these older results; may be repeated.",
)
@click.option(
    "--release",
    "releases",
    type=EXISTING_FILE,
    multiple=True,
    metavar="FILE",
    help="Add the trend over these results, named by their files, the oldest first: what "
    "`conformance releases --json` wrote. May be repeated.",
)
@click.option(
    "--explained",
    type=EXISTING_FOLDER,
    metavar="DIR",
    help="Add what `conformance explain --json` wrote into files of this folder.",
)
@click.option(
    "--scripts",
    type=EXISTING_FOLDER,
    metavar="DIR",
    help="Add the scripts of this folder that `conformance repro --out` wrote; a case's page says "
    "how they are named. Those of `repro --known` serve all cases of a known defect.",
)
@family_files_option
def command(
    *,
    results: tuple[Path, ...],
    folder: Path,
    power_files: tuple[Path, ...],
    before: tuple[Path, ...],
    releases: tuple[Path, ...],
    explained: Path | None,
    scripts: Path | None,
    family_files: tuple[Path, ...],
) -> None:
    """Make pages of result files of `conformance run --json`.

    Several files are put together, such as those of several engines or dtypes; of a case that is
    in two of them the last one counts.

    \b
    conformance report results.jsonl --html report
    conformance report today.jsonl --before yesterday.jsonl --power power.jsonl --html report
    """  # noqa: D301
    check_place(folder)
    found = merged(map(read_results, results))
    material = Material(
        results=found,
        trials=read_trials(power_files),
        before=merged(map(read_results, before)) if before else (),
        runs=tuple((path.stem, read_results(path)) for path in releases),
        explanations=read_explanations(explained) if explained else {},
        scripts=read_scripts(scripts, found) if scripts else {},
        inventory=take_inventory(build_registry(family_files=family_files), found),
    )
    count = write_site(folder, material)
    click.echo(f"{count} pages: {folder / 'index.html'}")
