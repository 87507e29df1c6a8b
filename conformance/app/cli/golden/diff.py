"""``conformance golden diff``: show how two goldens, or two folders of them, differ."""

from __future__ import annotations

from pathlib import Path

import click

from conformance.app.cli.printing import say
from conformance.core.errors import GoldenError
from conformance.tools.golden.changes import Kind, changes_between
from conformance.tools.golden.format import golden_files, load_golden

_PATH = click.Path(exists=True, path_type=Path)


@click.command("diff")
@click.argument("old", type=_PATH)
@click.argument("new", type=_PATH)
@click.pass_context
def command(ctx: click.Context, *, old: Path, new: Path) -> None:
    """Show how two goldens, or two folders of them, differ.

    Exit code 1 if a request changed by more than noise, or only one side has a golden.
    """
    pairs = _pairs(old, new)
    worst = 0
    for label, before, after in pairs:
        if before is None or after is None:
            say(f"{label}: only in {old if after is None else new}")
            worst = 1
            continue
        found = changes_between(load_golden(before), load_golden(after))
        if found.kind.severity > Kind.NOISE.severity:
            worst = 1
        if found.kind is not Kind.UNCHANGED or found.causes:
            say("\n".join(found.lines(label)))
    say(f"{len(pairs)} goldens compared")
    ctx.exit(worst)


def _pairs(old: Path, new: Path) -> list[tuple[str, Path | None, Path | None]]:
    if old.is_file() and new.is_file():
        return [(f"{new.parent.name}/{new.stem}", old, new)]
    if old.is_file() or new.is_file():
        raise GoldenError(f"{old} and {new}: compare two files, or two folders of goldens")
    before, after = golden_files(old), golden_files(new)
    if not before and not after:
        raise GoldenError(f"{old} and {new}: neither folder holds a golden")
    names = sorted(before.keys() | after.keys())
    return [("/".join(name), before.get(name), after.get(name)) for name in names]
