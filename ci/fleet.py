"""What so many machines would play in a night, by the seconds of the cases of a whole run.

    python ci/fleet.py [RESULTS.jsonl...] [--machines 100] [--jobs 8] [--hours 10]

Without results: the cases of the default tier, by the seconds of their families that a whole run
took, as recorded in ``conformance/run/family_seconds.json``.

The parts are those of ``conformance run --cluster``; the longest is begun first, each by the worker
that is free first. What a worker needs to start is counted for each part (--start, seconds).
"""

from __future__ import annotations

import argparse
import heapq
import sys
from pathlib import Path

from conformance.app.cluster.parts import parts_of
from conformance.core.errors import ConformanceError
from conformance.core.names import DEFAULT
from conformance.core.verdict import CaseId, CaseResult
from conformance.report.jsonl import read_results
from conformance.run.family_seconds import FamilySeconds, measured
from conformance.run.registry import build_registry
from conformance.run.selection import Selection, cases
from conformance.run.tiers import tier


def group_of(result: CaseResult) -> str:
    """The family of a result, on its engine."""
    return f"{result.engine}/{result.family}"


def ends_after(seconds: list[float], workers: int) -> float:
    """The time at which the last worker is done."""
    free = [0.0] * workers
    for length in sorted(seconds, reverse=True):
        heapq.heappush(free, heapq.heappop(free) + length)
    return max(free)


def played(files: list[Path]) -> tuple[dict[CaseId, str], FamilySeconds]:
    """The cases of results, each with its group, and the seconds of the groups."""
    results = [result for path in files for result in read_results(path)]
    of_case = {CaseId.parse(result.case): group_of(result) for result in results}
    return of_case, FamilySeconds(measured(results, group_of))


def planned() -> tuple[dict[CaseId, str], FamilySeconds]:
    """Like ``played``, for the cases that a run selects by default."""
    registry = build_registry()
    chosen = cases(registry, Selection(tier=tier(DEFAULT)))
    return {c: registry.group_of(c) for c in chosen}, FamilySeconds.load()


def main() -> int:
    """Print the estimate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="*", type=Path)
    parser.add_argument("--machines", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--hours", type=float, default=10.0)
    parser.add_argument("--start", type=float, default=6.0)
    given = parser.parse_args()
    try:
        of_case, recorded = played(given.results) if given.results else planned()
    except ConformanceError as error:
        print(f"ci/fleet.py: {error}", file=sys.stderr)
        return 2
    parts = parts_of(of_case, of_case.__getitem__, recorded)
    workers = given.machines * given.jobs
    one = [part.seconds + given.start for part in parts]
    night = given.hours * 3600
    times = int(night * workers / sum(one))
    print(
        f"{len(of_case)} cases of {len(set(of_case.values()))} families, "
        f"{sum(part.seconds for part in parts) / 3600:.2f} h of cases, {len(parts)} parts, "
        f"the longest {max(part.seconds for part in parts):.0f} s"
    )
    print(
        f"{given.machines} machines with {given.jobs} workers each play them once in "
        f"{ends_after(one, workers) / 60:.1f} min"
    )
    print(
        f"in {given.hours:g} h about {times} times: as many seeds, dtypes or releases, "
        f"{times * len(of_case):,} cases"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
