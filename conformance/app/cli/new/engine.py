"""``conformance new engine``: write a package with a working example engine."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from conformance.app.cli.printing import say
from conformance.tools.new_engine import write_package


@click.command("engine")
@click.argument("name", metavar="NAME")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The folder to write. Default: ./NAME.",
)
def command(*, name: str, out: Path | None) -> None:
    """Write a small package with an engine of your own.

    NAME names the engine, its module and the folder: letters, digits and _. The folder gets a
    pyproject.toml with the entry point, a module with a working subclass of Engine, which decodes
    models of mlx-lm, and a test. Replace its decoding with that of your own engine;
    docs/plugins.md explains each method and capability.
    """
    folder = write_package(name, out or Path(name))
    for file in sorted(path.name for path in folder.iterdir()):
        say(f"{folder / file}")
    say("\nNext:")
    say(f"  cd {shlex.quote(str(folder))}")
    say(f"  conformance smoke -p {name} --engine {name}")
    say(f"  conformance run -p {name} --engine {name} --family llama")
