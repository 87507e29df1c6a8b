"""``conformance smoke``: is the adapter broken, or the engine wrong?"""

from __future__ import annotations

from pathlib import Path

import click

from conformance.app.cli.models_output import plain_output
from conformance.app.cli.options import (
    family_files_option,
    globs,
    library_path_option,
    plugins_option,
)
from conformance.app.cli.printing import say
from conformance.app.cli.registries import registry_of
from conformance.core.errors import ConformanceError
from conformance.core.family import Family
from conformance.run.hosting import load_plugins
from conformance.run.registry import Registry, select
from conformance.tools.smoke import State, smoke

# A decoder with attention only: an error there is the engine's, not that of a special cache.
_PLAIN = "llama"
_EXITS = {State.WRONG: 1, State.MODEL: 1, State.BROKEN: 3}


@click.command("smoke")
@globs("engine", "Engines to try; may be repeated. Default: all.")
@globs("family", "Model families to try them on; may be repeated. Default: one for each library.")
@family_files_option
@library_path_option
@plugins_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    engines: tuple[str, ...],
    families: tuple[str, ...],
    family_files: tuple[Path, ...],
    plugins: tuple[str, ...],
) -> None:
    """Run engines for a few steps, to distinguish a broken adapter from a wrong engine.

    Prints a sentence for each engine and family. Exit code: 0 if all work, 1 if an engine or a
    model is wrong, 3 if an adapter breaks the protocol, 2 for a mistake in the options.
    """
    registry = registry_of(
        load_plugins(plugins),
        family_files=tuple(path.absolute() for path in family_files),
        engines=engines,
    )
    more = [text for name in plugins for text in ("-p", name)]
    more += [text for path in family_files for text in ("--family-file", str(path))]
    found = []
    for engine, family in _pairs(registry, engines, families):
        with plain_output():
            found.append(smoke(registry, engine, family, options=more))
        say(str(found[-1]))
    ctx.exit(max((_EXITS.get(result.state, 0) for result in found), default=0))


def _pairs(
    registry: Registry, engines: tuple[str, ...], families: tuple[str, ...]
) -> list[tuple[str, str]]:
    """Each engine with each family that it can decode."""
    chosen = registry.select_engines(engines)
    known = {name: registry.families_of(registry.engines[name]) for name in chosen}
    names = sorted({family.name for found in known.values() for family in found})
    chosen_families = set(select(names, families, what="family"))
    pairs = []
    for engine, found in known.items():
        fit = [family for family in found if family.name in chosen_families]
        if not families:
            fit = sorted(fit, key=_plainness)[:1]
        pairs += [(engine, family.name) for family in fit]
    if not pairs:
        raise ConformanceError("none of the selected engines can decode the selected families")
    return pairs


def _plainness(family: Family) -> tuple[bool, bool, bool]:
    """The key of the family to try first is the smallest."""
    return bool(family.facts.required), family.name != _PLAIN, not family.facts.quick
