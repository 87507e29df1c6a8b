"""Records, in the process that runs cases, what each family's cases depend on."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Literal

from conformance.core.engine import Capability, Engine
from conformance.core.verdict import CaseId, CaseResult, Verdict
from conformance.reference.installed_files import Signature
from conformance.reference.surroundings import LIBRARIES, Environment
from conformance.run.reuse.dependencies import all_of, local_modules, modules_of
from conformance.run.reuse.opened_files import number_opened, opened_files
from conformance.run.session import Session

Seen = Signature | Literal["module", "absent"]
"""A file as it was when opened; for a module, only that it was loaded."""

# Verdicts that another run need not repeat.
_FICKLE = {Verdict.UNSTABLE, Verdict.HANG}


def reusable(engine: type[Engine]) -> bool:
    """Whether an engine's results may be reused; other packages may have unseen dependencies."""
    return engine.__module__.startswith("conformance.") and not engine.elsewhere


class Recorder:
    """Finds the modules and files that the cases of a session depend on.

    Args:
        environment: the installed packages, recorded before a library was imported.
        left_out: files that decide which cases are run, but not their results.
    """

    def __init__(self, environment: Environment, left_out: Collection[str] = ()) -> None:
        self._environment, self._left_out = environment, left_out
        self._reported: dict[tuple[str, str], dict[str, Seen]] = {}
        self._counts: dict[tuple[str, str], tuple[int, int]] = {}

    def modules(self, session: Session, case: CaseId, result: CaseResult) -> dict[str, Seen] | None:
        """Dependencies of this family and engine that were not reported before.

        ``None`` if the result must not be kept: it may change in the next run without a known
        defect that says so, or code was loaded that is neither installed nor a library's, whose
        dependencies are not all visible. If a model could not be loaded, its process ended, or it
        is in other processes: any module of its library.
        """
        if result.verdict in _FICKLE and not (result.known and result.expected):
            return None
        engine = session.registry.engines[case.engine]
        if not reusable(engine) or session.registry.family_of(case).facts.model_file:
            return None
        subject = session.loaded(case)
        place = (case.engine, case.family)
        counts = (len(sys.modules), number_opened())
        if subject is not None and self._counts.get(place) == counts:
            return {}
        if any(local_modules(self._environment)):
            return None
        if subject is None:
            ended = result.verdict is Verdict.CRASH
            known = ended or session.failed(case)
            found = _whole_library(engine) if known else None
        else:
            packages = (engine.library,) if engine.library in LIBRARIES else LIBRARIES
            found = modules_of(subject.model, self._environment, packages)
            elsewhere = engine.own_processes or Capability.SERVED in engine.capabilities
            if found is not None and elsewhere:
                found |= {all_of(library) for library in LIBRARIES}
        if found is None:
            return None
        now: dict[str, Seen] = dict.fromkeys(sorted(found), "module")
        for path, seen in opened_files(self._environment, self._left_out):
            now.setdefault(path, "absent" if seen is None else seen)
        self._counts[place] = counts if subject is not None else (0, 0)
        before = self._reported.setdefault(place, {})
        new = {name: seen for name, seen in now.items() if name not in before}
        before |= new
        return new


def _whole_library(engine: type[Engine]) -> frozenset[str] | None:
    return frozenset({all_of(engine.library)}) if engine.library in LIBRARIES else None
