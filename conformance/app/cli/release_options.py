"""The options of commands that install releases and run them."""

from __future__ import annotations

from pathlib import Path

import click

from conformance.app.cli.options import SECONDS, stacked

_FOLDER = click.Path(file_okay=False, path_type=Path)

release_options = stacked(
    click.option(
        "--timeout",
        type=SECONDS,
        metavar="SECONDS",
        help="Stop the run of a release after this time; results until then count.",
    ),
    click.option(
        "--json",
        "json_folder",
        type=_FOLDER,
        metavar="DIR",
        help="Save the results in this folder, one file for each release.",
    ),
    click.option(
        "--resume",
        is_flag=True,
        help="Read existing results in the folder of --json instead of rerunning these releases.",
    ),
    click.option(
        "--pin",
        "pins",
        multiple=True,
        metavar="[LIBRARY==V:]NAME==V",
        help="Install this version with every release, or with the named one, instead of the "
        "version known to work.",
    ),
    click.option(
        "--cache-dir",
        type=_FOLDER,
        metavar="DIR",
        help="Folder for the releases' environments. Default: a folder in the user's cache.",
    ),
)
