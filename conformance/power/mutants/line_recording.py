"""Records which lines of a library's files each schedule of a family runs, with coverage.py."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import coverage

from conformance.core.engine import Capability, Engine
from conformance.core.errors import ModelError
from conformance.core.verdict import CaseId, Verdict
from conformance.power.mutants.reach import Place, Reach
from conformance.reference.engine import ReferenceEngine
from conformance.run.registry import Registry
from conformance.run.session import Session
from conformance.scenarios.speculative import SPECULATIVE

DTYPE = "float32"
# Scenarios that make, join and cut caches also run in half precision, where wrong dtypes show.
HALF = "bfloat16"
_IN_HALF = ("slot_reuse", "staggered", "prompt_cache", "prefix_caching")
# The context of all code outside of an engine's runs.
_SINGLE = "single stream"


def reach_of(
    registry: Registry,
    library: str,
    family: str,
    files: Mapping[str, Path],
    *,
    key: str,
    seed: int = 0,
    scenarios: Sequence[str] = (),
) -> Reach:
    """The lines that the schedules of a family run, for all engines of its library.

    Args:
        files: the modules whose lines are recorded, with their paths.
        key: the key of the record.
        scenarios: the scenarios to run; all by default.

    Raises:
        ModelError: the family's model cannot be loaded.
    """
    cases = list(_cases(registry, library, family, seed, scenarios))
    recorder = _Recorder(files)
    session = Session(registry)
    places: list[Place] = []
    with recorder.recording():
        for case in cases:
            recorder.case = case
            if case.scenario == SPECULATIVE.name:
                session.run(case)  # drafters are built once, not by any schedule
            result = session.run(case, around=recorder.around)
            if session.failed(case):
                raise ModelError(result.evidence[0].what)
            for schedule in result.schedules:
                seconds = recorder.seconds.get(_context(case, schedule.name))
                if seconds is not None and schedule.verdict is not Verdict.UNSUPPORTED:
                    good = schedule.verdict.good
                    places.append(Place(str(case), schedule.name, round(seconds, 4), good))
    return recorder.reach(places, key=key, library=library, family=family)


def engines_of(registry: Registry, library: str) -> Iterator[type[Engine]]:
    """The engines that decode with the library's own batching in this process.

    Servers and split models use other processes, where no mutant is put in and no line recorded.
    """
    for engine in registry.engines.values():
        elsewhere = engine.own_processes or Capability.SERVED in engine.capabilities
        if engine.library == library and not elsewhere and not issubclass(engine, ReferenceEngine):
            yield engine


def _cases(
    registry: Registry, library: str, family: str, seed: int, scenarios: Sequence[str]
) -> Iterator[CaseId]:
    for engine in engines_of(registry, library):
        for scenario in registry.scenarios_for(engine, registry.families[library, family]):
            if scenario.oracle_only or (scenarios and scenario.name not in scenarios):
                continue
            for dtype in (DTYPE, HALF) if scenario.name in _IN_HALF else (DTYPE,):
                yield CaseId(engine.name, family, scenario.name, dtype, seed)


def _context(case: CaseId, schedule: str) -> str:
    return f"{case}:{schedule}"


class _Recorder:
    """Attributes lines to the running schedule, or to single streams.

    Attributes:
        case: the running case.
        seconds: the seconds of the engine's runs, by schedule.
    """

    def __init__(self, files: Mapping[str, Path]) -> None:
        self.case: CaseId | None = None
        self.seconds: dict[str, float] = {}
        self._modules = {str(path): module for module, path in files.items()}
        self._coverage = coverage.Coverage(
            data_file=None,
            config_file=False,
            include=list(self._modules),
            concurrency="thread",
            messages=False,
            check_preimported=False,
        )
        # Other ways of recording have one context for the whole run.
        self._coverage.set_option("run:core", "ctrace")

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        self._coverage.start()
        self._coverage.switch_context(_SINGLE)
        try:
            yield
        finally:
            self._coverage.stop()

    @contextlib.contextmanager
    def around(self, schedule: str) -> Iterator[None]:
        """Record the schedule while the engine runs."""
        assert self.case is not None  # set before each case
        name = _context(self.case, schedule)
        self._coverage.switch_context(name)
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + spent
            self._coverage.switch_context(_SINGLE)

    def reach(self, places: Iterable[Place], *, key: str, library: str, family: str) -> Reach:
        data = self._coverage.get_data()
        by_context: dict[str, dict[str, int]] = {}
        for path, module in self._modules.items():
            for line, contexts in data.contexts_by_lineno(path).items():
                for context in contexts:
                    found = by_context.setdefault(context, {})
                    found[module] = found.get(module, 0) | 1 << line
        sets: dict[int, int] = {}
        kept = tuple(places)
        lines = tuple(
            {
                module: sets.setdefault(bits, len(sets))
                for module, bits in by_context.get(_context(place.id, place.schedule), {}).items()
            }
            for place in kept
        )
        single = {module: f"{bits:x}" for module, bits in by_context.get(_SINGLE, {}).items()}
        return Reach(key, library, family, single, kept, lines, tuple(f"{bits:x}" for bits in sets))
