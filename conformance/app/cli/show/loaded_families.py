"""``conformance show families --engine``: load each family and show its parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from conformance.app.cli.parallel import in_processes
from conformance.core.errors import ModelError, Unsupported
from conformance.core.family import Family
from conformance.core.library import Library
from conformance.run.coverage import account
from conformance.run.registry import Registry


def loaded_families(registry: Registry, patterns: tuple[str, ...]) -> dict[str, Any]:
    """Tables by title: families, reasons for left-out scenarios, modules without a family.

    Raises:
        ConformanceError: a pattern matches no engine.
    """
    engines = [registry.engines[n] for n in registry.select_engines(patterns)]
    subjects = [(e, f) for e in engines for f in registry.families_of(e)]
    work = {(e.library, f.name): (registry.libraries[e.library], f) for e, f in subjects}
    facts = dict(zip(work, _load_all(work), strict=True))
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
        "uncovered": [
            {"library": found.library, "module": module}
            for found in accounts
            for module in found.uncovered
        ],
    }


def _load_all(work: Mapping[Any, tuple[Library, Family]]) -> Iterator[dict[str, str]]:
    return in_processes(_describe, list(work.values()), jobs=None, on_crash=_crashed)


def _crashed(_: tuple[Library, Family]) -> dict[str, str]:
    return {"caches": "its process crashed", "positions": ""}


def _describe(subject: tuple[Library, Family]) -> dict[str, str]:
    library, family = subject
    try:
        found = library.describe(library.load(family, dtype="float32", seed=0))
    except (Unsupported, ModelError) as error:
        return {"caches": str(error), "positions": ""}
    return {"caches": ", ".join(found.caches), "positions": found.positions}
