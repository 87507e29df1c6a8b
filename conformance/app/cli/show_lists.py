"""``conformance show families``, ``engines``, and so on: what is installed, by name."""

from __future__ import annotations

import dataclasses
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rich.table import Table

from conformance.app.cli.consoles import new_console
from conformance.app.cli.parallel import in_processes
from conformance.core.engine import Engine
from conformance.core.errors import ConformanceError, ModelError, Unsupported
from conformance.core.family import Family
from conformance.core.inventory import Account
from conformance.core.library import Library
from conformance.report.outcome import count
from conformance.run.coverage import account
from conformance.run.field_coverage import State, covered
from conformance.run.largest_values import PLAIN, WITH, LargestValues
from conformance.run.registry import Registry, select

Lists = dict[str, Any]

COVERAGE, DEFECTS = "coverage", "defects"
KINDS = ("families", "engines", "scenarios", "faults", "plugins", COVERAGE, DEFECTS)

_IN_TABLE = {
    "families": ("family", "library", "module", "modalities", "window", "engines"),
    "engines": ("engine", "library", "families", "scenarios"),
    "scenarios": ("scenario", "summary", "engines"),
}
"""Columns for readers; the other keys are for ``--json``."""

_WIDE = 240

FEW = 30
"""The most families that are listed one by one."""


def lists_of(
    registry: Registry,
    what: str,
    engines: tuple[str, ...] = (),
    *,
    families: tuple[str, ...] = (),
    caches: tuple[str, ...] = (),
) -> Lists:
    """Tables by title: rows of equal keys.

    Args:
        what: a name of ``KINDS``.
        engines: globs; for families, only those of these engines, each loaded; for coverage, the
            engines to cover.
        families: globs of the families to list.
        caches: globs of classes of caches; only families that have one, each loaded.

    Raises:
        ConformanceError: a glob matches no engine, or no family.
    """
    if families:
        names = set(select({name for _, name in registry.families}, families, what="family"))
        kept = {key: found for key, found in registry.families.items() if key[1] in names}
        registry = dataclasses.replace(registry, families=kept)
    if caches:
        # A model that another program serves has no caches that can be seen.
        own = [
            n for n in registry.libraries if not getattr(registry.engines[n], "elsewhere", False)
        ]
        return loaded_families(registry, engines or tuple(own), caches)
    if what == COVERAGE:
        return coverage_lists(registry, registry.select_engines(engines))
    return loaded_families(registry, engines) if engines else _LISTS[what](registry)


def print_lists(lists: Lists) -> None:
    """Print tables; without a terminal, each as wide as its content. Many families fit a screen."""
    console = new_console()
    if len(lists.get("families", ())) > FEW:
        for line in _in_one_screen(lists, console.width):
            console.print(line, soft_wrap=True)
        return
    if not console.is_terminal:
        console.width = _WIDE
    for title, rows in lists.items():
        if rows:
            console.print(_table(title, rows))


def _in_one_screen(lists: Lists, width: int) -> Iterator[str]:
    """The families' names by library, and what else there is to see of them."""
    for library in dict.fromkeys(row["library"] for row in lists["families"]):
        names = [row["family"] for row in lists["families"] if row["library"] == library]
        yield f"{library}: {count(len(names), 'family')}"
        yield from textwrap.wrap(
            "  ".join(sorted(names, key=str.lower)),
            width=width,
            break_long_words=False,
            break_on_hyphens=False,
        )
    if missing := [f"{row['library']}/{row['module']}" for row in lists["uncovered"]]:
        yield f"modules without a family: {', '.join(missing)}"
    yield (
        f"{len(lists['excluded'])} modules are no families (--json says why). More of some: "
        "--family 'qwen3*', --cache '*Rotating*', --engine mlx_vlm"
    )


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
        "uncovered": _uncovered(accounts),
    }


def _uncovered(accounts: Sequence[Account]) -> list[dict[str, str]]:
    return [{"library": a.library, "module": module} for a in accounts for module in a.uncovered]


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


# ``conformance show``: what is installed, in one screen, and useful next commands ----------------

WIDTH = 79
"""Column widths for a narrow terminal."""

_NEXT = (
    ("conformance show families|engines|scenarios|faults|plugins", "each by name"),
    ("conformance show defects", "known defects"),
    ("conformance run --family llama", "one family"),
    ("conformance show mlx_lm/llama/ragged/float32/0", "one case in full"),
)


def overview(registry: Registry) -> str:
    """Counts of families, engines, scenarios and plugins, and useful next commands."""
    lines = list(_counts(registry))
    width = max(len(call) for call, _ in _NEXT)
    lines += ["", "Next:", *(f"  {call:<{width}}  {what}" for call, what in _NEXT)]
    return "\n".join(lines)


def _counts(registry: Registry) -> Iterator[str]:
    families = Counter(library for library, _ in registry.families)
    of_libraries = [f"{families[name]} of {name}" for name in registry.libraries]
    yield _line(len(registry.families), "families", of_libraries)
    yield _line(len(registry.engines), "engines", registry.engines)
    yield _line(len(registry.scenarios), "scenarios", registry.scenarios)
    yield _line(len(registry.plugins), "plugins", (plugin.name for plugin in registry.plugins))


def _line(count: int, what: str, names: Iterable[str]) -> str:
    return textwrap.fill(
        f"{count:>4} {what:<10} {', '.join(names)}",
        width=WIDTH,
        subsequent_indent=" " * 16,
        break_long_words=False,
        break_on_hyphens=False,
    )


# ``conformance show families --engine``: load each family and show its parts ---------------------

_CRASHED = {"caches": "its process crashed", "positions": ""}


def loaded_families(
    registry: Registry, patterns: tuple[str, ...], caches: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Tables by title: families, reasons for left-out scenarios, modules without a family.

    Args:
        patterns: globs of engines.
        caches: globs of classes of caches; only families that have one, and these alone.

    Raises:
        ConformanceError: a pattern matches no engine, or no class of caches.
    """
    engines = [registry.engines[n] for n in registry.select_engines(patterns)]
    subjects = [(e, f) for e in engines for f in registry.families_of(e)]
    work = {(e.library, f.name): (registry.libraries[e.library], f) for e, f in subjects}
    described = in_processes(_describe, list(work.values()), jobs=None, on_crash=lambda _: _CRASHED)
    facts = dict(zip(work, described, strict=True))
    reasons = Counter[tuple[str, str, str]]()
    rows = []
    for engine, family in subjects:
        left_out = registry.left_out(engine, family)
        reasons.update((engine.name, name, why) for name, why in left_out.items())
        rows.append(
            {
                "family": family.name,
                "engine": engine.name,
                "modalities": list(family.facts.modalities),
                **facts[engine.library, family.name],
                "window": family.facts.window,
                "scenarios": [s.name for s in registry.scenarios_for(engine, family)],
                "left out": list(left_out),
            }
        )
    if caches:
        classes = {name for row in rows for name in str(row["caches"]).split(", ")}
        wanted = set(select(classes, caches, what="class of caches"))
        return {"families loaded": [r for r in rows if wanted & set(str(r["caches"]).split(", "))]}
    accounts = [account(registry, name) for name in sorted({e.library for e in engines})]
    return {
        "families loaded": rows,
        "left out": [
            {"engine": engine, "scenario": scenario, "families": count, "reason": why}
            for (engine, scenario, why), count in sorted(reasons.items())
        ],
        "excluded": [
            {"module": module, "reason": reason}
            for found in accounts
            for module, reason in sorted(found.excluded.items())
        ],
        "uncovered": _uncovered(accounts),
    }


def _describe(subject: tuple[Library, Family]) -> dict[str, str]:
    library, family = subject
    try:
        found = library.describe(library.load(family, dtype="float32", seed=0))
    except (Unsupported, ModelError) as error:
        return {"caches": str(error), "positions": ""}
    return {"caches": ", ".join(found.caches), "positions": found.positions}


# ``conformance show coverage``: the fields that libraries accept, and which schedules set them ----


def coverage_lists(registry: Registry, engines: Sequence[str]) -> dict[str, Any]:
    """Tables by title: fields of each state, their numbers by place, the largest values played.

    Raises:
        ConformanceError: none of the engines says what its library accepts.
    """
    largest = LargestValues()
    states = covered(registry, engines, largest)
    if not states:
        raise ConformanceError(f"{', '.join(engines)}: no adapter of these says what is accepted")
    whys = {State.SET: "by", State.REVIEWED: "reason", State.GAP: ""}
    lists: dict[str, Any] = {
        f"fields {state}": [
            {"engine": one.engine, "place": one.place, "field": one.field}
            | ({name: one.why} if name else {})
            for one in states
            if one.state is state
        ]
        for state, name in whys.items()
    }
    counts = Counter((one.engine, one.place, one.state) for one in states)
    places = dict.fromkeys((one.engine, one.place) for one in states)
    lists["places"] = [
        {"engine": engine, "place": place}
        | {str(state): counts[engine, place, state] for state in State}
        for engine, place in places
    ]
    lists["largest values"] = [
        {"engine": one.engine, "quantity": one.quantity}
        | {feature: one.values.get(feature) for feature in (PLAIN, *WITH)}
        | {"by": one.by}
        for one in largest.table()
    ]
    return lists
