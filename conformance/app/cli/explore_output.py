"""The output of ``conformance explore``."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from conformance.core.schedule import to_json
from conformance.tools.explore.results import Discovery, Explored


def lines(found: Explored) -> Iterator[str]:
    """One family: statistics of its schedules, and each discovery with its schedule."""
    unit = found.unit
    where = f"{unit.engine}/{unit.family}"
    if found.unsupported or found.failed:
        yield f"{where}: not explored: {found.unsupported or found.failed}"
        return
    again = f", {found.again} more findings like a known one" if found.again else ""
    unsteady = (
        f", {found.unsteady} batches behaved otherwise when repeated" if found.unsteady else ""
    )
    yield (
        f"{where}: {found.examples} schedules ({found.programs} of them programs, "
        f"{found.refused} refused) in {found.wall:.1f} s, {rate(found):.3g} a second and core"
        f"{again}{unsteady}"
    )
    for discovery in found.discoveries:
        yield from _discovered(discovery)


def _discovered(found: Discovery) -> Iterator[str]:
    size = len(found.schedule.requests)
    requests = "1 request" if size == 1 else f"{size} requests"
    yield (
        f"  {found.verdict}, found by example {found.example} ({found.maker}), shrunk to {requests}"
        f" in {found.seconds:.1f} s"
        + ("" if found.reproduced else "; playing the schedule again does not show it")
    )
    yield f"  {found.check}: {found.what}"
    yield f"  {to_json(found.schedule)}"


def rate(found: Explored) -> float:
    """Schedules per second of processor time: the median over whole seconds."""
    whole = found.rates[:-1] or found.rates
    return float(statistics.median(whole)) if whole else 0.0


def summary(found: Sequence[Explored]) -> Iterator[str]:
    """Coverage of all families together, and a summary sentence."""
    pairs: Counter[str] = Counter()
    for item in found:
        pairs.update(item.pairs)
    missing = sorted(name for name, count in pairs.items() if not count)
    seen = {name for item in found for name in item.witnesses}
    possible = dict.fromkeys(name for item in found for name in item.possible)
    yield f"pairs of features: {len(pairs) - len(missing)} of {len(pairs)}" + _but(missing)
    unseen = [name for name in possible if name not in seen]
    yield f"witnesses: {len(seen)} of {len(possible)}" + _but(unseen)
    examples = sum(item.examples for item in found)
    rates = [rate(item) for item in found if item.rates]
    wall = sum(item.wall for item in found)
    outside = 1 - sum(item.modelled for item in found) / wall if wall else 0.0
    discoveries = sum(len(item.discoveries) for item in found)
    speed = statistics.median(rates) if rates else 0.0
    failed = any(item.failed for item in found)
    verdict = "FAILED" if failed else "FOUND" if discoveries else "OK"
    yield (
        f"{verdict}: {discoveries} findings in {examples} schedules, "
        f"{len(rates)} families; {speed:.3g} schedules a second and core (median of families), "
        f"{outside:.0%} of the time outside of engine and oracle"
    )


def _but(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"; not {', '.join(names[:8])}{more}"
