"""Chooses the cases of the stage ``suite``: ``python ci/suite_cases.py RESULTS.jsonl...``.

The results are those of a run of all families, at least in the quick tier. Writes
``ci/suite_cases.txt``, which pytest reads: the cheapest cases in which each engine shows every
verdict that it has in a scenario or with a kind of cache, every known defect that shows in these
families, and every family that stands for a kind.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

from kinds import kinds

from conformance.core.faults.traits import traits
from conformance.core.verdict import CaseResult
from conformance.report.jsonl import read_results
from conformance.run.registry import Registry, build_registry
from conformance.run.selection import Selection, cases
from conformance.run.tiers import tier

ENGINES = ("mlx_lm", "mlx_lm_batch_generate", "mlx_vlm", "mlx_vlm_batch_generate")
TARGET = Path(__file__).parent / "suite_cases.txt"
ITEM = "conformance.suite.cases::"
# More than a minute for what a run of all families shows, too.
_LONG = re.compile(
    "mlx_vlm/qwen4_exp/traffic|mlx_vlm_batch_generate/(deepseek_v4|unlimited_ocr)/traffic"
)
_STARTING = 0.3
"""Seconds that any case takes beside its own."""


def shown(result: CaseResult, kept: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """What a case shows; ``kept`` are the kinds of caches and states of its family."""
    engine, verdict = result.engine, str(result.verdict)
    yield engine, result.scenario, verdict
    yield engine, result.family
    yield from ((engine, kind, verdict) for kind in kept)
    yield from ((engine, "known", entry) for entry in (result.known or "").split(", ") if entry)


def cheapest(shows: Mapping[str, set[tuple[str, ...]]], seconds: Mapping[str, float]) -> list[str]:
    """Cases that together show what all do: each time the one that shows most for its seconds."""
    left, chosen = set[tuple[str, ...]]().union(*shows.values()), list[str]()
    while left:
        best = max(shows, key=lambda case: len(shows[case] & left) / (_STARTING + seconds[case]))
        chosen.append(best)
        left -= shows[best]
    for case in sorted(chosen, key=lambda case: seconds[case], reverse=True):
        others = set[tuple[str, ...]]().union(*(shows[other] for other in chosen if other != case))
        if shows[case] <= others:
            chosen.remove(case)
    return chosen


def _kept(registry: Registry, key: tuple[str, str]) -> list[str]:
    """The kinds of caches and states of a model, by its library and family."""
    library, family = registry.libraries[key[0]], registry.families[key]
    model = library.load(family, dtype="float32", seed=0)
    found = traits(SimpleNamespace(family=family, library=library, model=model))
    return sorted(trait for trait in found if trait.startswith(("cache:", "state:")))


def main(sources: Sequence[str], target: Path = TARGET) -> None:
    """Write the file."""
    registry = build_registry(engines=ENGINES)
    kept = functools.cache(functools.partial(_kept, registry))
    shows, seconds = {}, {}
    found = {r.case: r for source in sources for r in read_results(Path(source))}
    for case in cases(registry, Selection(ENGINES, tuple(kinds()), tier=tier("quick"))):
        result, key = found.get(str(case)), (registry.engines[case.engine].library, case.family)
        if result is None or _LONG.match(str(case)):
            continue
        if registry.families[key].facts.quick:
            shows[str(case)] = set(shown(result, kept(key)))
            seconds[str(case)] = result.seconds
    chosen = set(cheapest(shows, seconds))
    target.write_text("".join(f"{ITEM}{name}\n" for name in shows if name in chosen))
    spent, whole = sum(seconds[name] for name in chosen), sum(seconds.values())
    print(f"{target}: {len(chosen)} of {len(shows)} cases, {spent:.0f} of {whole:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
