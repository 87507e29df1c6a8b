"""The speed of a run, as ratios: workers against one, wall time against time in model calls."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence

import msgspec

from conformance.core.errors import ConformanceError
from conformance.core.processes import run_to_end
from conformance.core.schedule import Schedule
from conformance.core.verdict import CaseId
from conformance.reference.subject import Subject
from conformance.run.coverage import account
from conformance.run.judging.judge import brief_for
from conformance.run.registry import Registry
from conformance.run.runner import play
from conformance.run.selection import Selection, cases
from conformance.run.session import Session
from conformance.scenarios.build import text_request, together


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


# Tokens per second of engines that decode one library's families, side by side in one process -----

ROWS = 8
# Tokens of each row: enough for decoding to take longer than prefill.
_OUTPUT = 32
_LENGTHS = (5, 7, 11, 13)
_ROUNDS = 5


class Throughput(msgspec.Struct, frozen=True):
    """The speed on a batch of ``rows`` requests; ``ratio`` is to the first engine's speed."""

    engine: str
    family: str
    rows: int
    tokens_per_second: float
    ratio: float


def measure_throughput(
    registry: Registry, engines: Sequence[str], family: str
) -> tuple[Throughput, ...]:
    """Let the engines decode the same batch in turn, and report each one's median round.

    Raises:
        ModelError: the family's model cannot be loaded.
    """
    session = Session(registry)
    subject = session.subject(CaseId(engines[0], family, "wide", "float32", 0))
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    for turn in range(_ROUNDS + 1):
        for name in engines:
            spent = _time(registry, subject, name)
            seconds[name] += [spent] if turn else []  # the first round warms up
    speed = {n: ROWS * _OUTPUT / statistics.median(spent) for n, spent in seconds.items()}
    first = speed[engines[0]]
    return tuple(Throughput(n, family, ROWS, speed[n], speed[n] / first) for n in engines)


def _time(registry: Registry, subject: Subject, name: str) -> float:
    engine = registry.engines[name]
    brief = brief_for(subject, engine, 0)
    lengths = [_LENGTHS[i % len(_LENGTHS)] for i in range(ROWS)]
    rows = [text_request(brief, f"r{i}", n, max_tokens=_OUTPUT) for i, n in enumerate(lengths)]
    start = time.perf_counter()
    play(
        engine,
        subject.model_for(engine),
        Schedule("throughput", (together(*rows),)),
        meter=subject.meter,
    )
    return time.perf_counter() - start
