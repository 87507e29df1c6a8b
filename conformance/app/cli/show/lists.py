"""``conformance show families``, ``engines``, and so on: what is installed, by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table

from conformance.app.cli.consoles import new_console
from conformance.app.cli.show.loaded_families import loaded_families
from conformance.core.engine import Engine
from conformance.core.inventory import Account
from conformance.run.coverage import account
from conformance.run.registry import Registry

Lists = dict[str, Any]

KINDS = ("families", "engines", "scenarios", "faults", "plugins")

_IN_TABLE = {
    "families": ("family", "library", "module", "modalities", "window", "engines"),
    "engines": ("engine", "library", "families", "scenarios"),
    "scenarios": ("scenario", "summary", "engines"),
}
"""Columns for readers; the other keys are for ``--json``."""

_WIDE = 240


def lists_of(registry: Registry, what: str, engines: tuple[str, ...] = ()) -> Lists:
    """Tables by title: rows of equal keys.

    Args:
        what: a name of ``KINDS``.
        engines: globs; for families, only those of these engines, each loaded.

    Raises:
        ConformanceError: a glob matches no engine.
    """
    return loaded_families(registry, engines) if engines else _LISTS[what](registry)


def print_lists(lists: Lists) -> None:
    """Print tables; without a terminal, each as wide as its content."""
    console = new_console()
    if not console.is_terminal:
        console.width = _WIDE
    for title, rows in lists.items():
        if rows:
            console.print(_table(title, rows))


def _families(registry: Registry) -> Lists:
    accounts = [account(registry, name) for name in registry.libraries]
    return {
        "families": [
            {
                "family": family.name,
                "library": library,
                "module": family.module,
                "modalities": list(family.facts.modalities),
                "window": family.facts.window,
                "engines": {
                    engine.name: [s.name for s in registry.scenarios_for(engine, family)]
                    for engine in _engines_of(registry, library)
                },
                "left_out": {
                    engine.name: registry.left_out(engine, family)
                    for engine in _engines_of(registry, library)
                },
                "notes": family.facts.notes,
            }
            for (library, _), family in registry.families.items()
        ],
        "excluded": [
            {"library": found.library, "module": module, "reason": reason}
            for found in accounts
            for module, reason in sorted(found.excluded.items())
        ],
        "uncovered": [row for found in accounts for row in _uncovered(found)],
    }


def _uncovered(found: Account) -> list[dict[str, str]]:
    return [{"library": found.library, "module": module} for module in found.uncovered]


def _engines(registry: Registry) -> Lists:
    return {
        "engines": [
            {
                "engine": engine.name,
                "library": engine.library,
                "families": len(registry.families_of(engine)),
                "capabilities": sorted(engine.capabilities),
                "scenarios": [scenario.name for scenario in registry.scenarios_for(engine)],
            }
            for engine in registry.engines.values()
        ]
    }


def _scenarios(registry: Registry) -> Lists:
    return {
        "scenarios": [
            {
                "scenario": scenario.name,
                "summary": scenario.summary,
                "needs": sorted(scenario.needs),
                "witnesses": [witness.name for witness in scenario.witnesses],
                "engines": [
                    engine.name
                    for engine in registry.engines.values()
                    if scenario in registry.scenarios_for(engine)
                ],
            }
            for scenario in registry.scenarios.values()
        ]
    }


def _plugins(registry: Registry) -> Lists:
    return {
        "plugins": [
            {"plugin": plugin.name, "origin": plugin.origin} for plugin in registry.plugins
        ],
        "libraries": [
            {"library": name, "versions": library.versions(), "device": library.device()}
            for name, library in registry.libraries.items()
        ],
        "faults by engine": [
            {"engine": engine, "faults": count}
            for engine, count in Counter(f.engine for f in registry.faults.values()).items()
        ],
    }


def _faults(registry: Registry) -> Lists:
    return {
        "faults": [
            {"fault": fault.name, "class": fault.fault_class, "engine": fault.engine}
            for fault in registry.faults.values()
        ]
    }


_LISTS: dict[str, Callable[[Registry], Lists]] = {
    "families": _families,
    "engines": _engines,
    "scenarios": _scenarios,
    "faults": _faults,
    "plugins": _plugins,
}


def _engines_of(registry: Registry, library: str) -> list[type[Engine]]:
    return [engine for engine in registry.engines.values() if engine.library == library]


# As a table --------------------------------------------------------------------------------------


def _table(title: str, rows: Sequence[dict[str, Any]]) -> Table:
    """Rows of equal keys; keys without a value in any row are left out."""
    table = Table(title=f"{title}: {len(rows)}", title_justify="left", box=None, pad_edge=False)
    names = _IN_TABLE.get(title, tuple(rows[0]))
    columns = [name for name in names if any(row[name] for row in rows)]
    for column in columns:
        table.add_column(column, no_wrap=column == columns[0], overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row[column]) for column in columns))
    return table


def _cell(value: Any) -> str:
    """A value as short text; a list within a dict is given by its length."""
    if isinstance(value, dict):
        pairs = value.items()
        return ", ".join(f"{k} ({len(v)})" if isinstance(v, list) else f"{k} {v}" for k, v in pairs)
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
