"""The speed of a run, as ratios: workers against one, wall time against time in model calls."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import msgspec

from conformance.core.errors import ConformanceError
from conformance.core.processes import run_to_end
from conformance.run.coverage import account
from conformance.run.registry import Registry
from conformance.run.selection import Selection, cases
from conformance.run.session import Session


class PhaseShare(msgspec.Struct, frozen=True):
    """One phase of the one-process run, in seconds; ``forward`` is its time in model calls."""

    name: str
    wall: float
    forward: float


class Overhead(msgspec.Struct, frozen=True):
    """A one-process run in which each model call is evaluated before it returns.

    ``ratio`` is wall time over time in model calls. The oracle's and the noise's calls are included
    in the time in model calls; the phases show where the rest is spent.
    """

    cases: int
    wall: float
    forward: float
    ratio: float
    phases: tuple[PhaseShare, ...]


class Speedup(msgspec.Struct, frozen=True):
    """The same cases with one worker process and with ``jobs``; process start-up is included."""

    cases: int
    jobs: int
    one: float
    many: float
    ratio: float


class Covered(msgspec.Struct, frozen=True):
    """The installed library's modules: with a family, excluded for a reason, or neither."""

    library: str
    modules: int
    covered: int
    excluded: int
    uncovered: int
    families: int


def measure_overhead(registry: Registry, selection: Selection) -> Overhead:
    """Run the selection in this process and split its time.

    Raises:
        ConformanceError: the selection has no case.
    """
    session = Session(registry, evaluate=True)
    chosen = cases(registry, selection)
    if not chosen:
        raise ConformanceError("nothing to measure: the selection has no case")
    start = time.perf_counter()
    forward = sum(session.run(case).forward_seconds for case in chosen)
    wall = time.perf_counter() - start
    phases = tuple(
        PhaseShare(name, spent.wall, spent.forward)
        for name, spent in sorted(session.phases.spent.items(), key=lambda kv: -kv[1].wall)
    )
    return Overhead(len(chosen), wall, forward, wall / forward, phases)


def measure_speedup(registry: Registry, selection: Selection, *, jobs: int) -> Speedup:
    """Time the command with one worker and with ``jobs``, one after the other.

    Raises:
        ConformanceError: a run ended with a pytest error, so its time is meaningless.
    """
    one = _time_run(selection, 1)
    many = _time_run(selection, jobs)
    return Speedup(len(cases(registry, selection)), jobs, one, many, one / many)


def measure_coverage(registry: Registry, library: str) -> Covered:
    """Count the installed library's modules: covered, excluded, or neither."""
    found = account(registry, library)
    total = len(registry.libraries[library].coverage().modules)
    families = sum(len(names) for names in found.covered.values())
    return Covered(
        library,
        total,
        len(found.covered.keys() & set(registry.libraries[library].coverage().modules)),
        len(found.excluded),
        len(found.uncovered),
        families,
    )


def _time_run(selection: Selection, jobs: int) -> float:
    command = [sys.executable, "-m", "conformance", "run", "--jobs", str(jobs)]
    command += _options("--engine", selection.engines)
    command += _options("--family", selection.families)
    command += _options("--scenario", selection.scenarios)
    command += _options("--dtype", selection.dtypes)
    command += _options("--seed", map(str, selection.seeds))
    start = time.perf_counter()
    done = run_to_end(command)
    seconds = time.perf_counter() - start
    if done.code not in (0, 1):
        said = done.last_line
        raise ConformanceError(f"`{' '.join(command[2:])}` ended with {done.code}: {said}")
    return seconds


def _options(name: str, values: Sequence[str] | map[str]) -> list[str]:
    return [part for value in values for part in (name, value)]
