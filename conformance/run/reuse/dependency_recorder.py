"""In the process that plays cases: what each family's cases hung on, reported once."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from conformance.core.verdict import CaseId, CaseResult, Verdict
from conformance.run.reuse.dependencies import (
    LIBRARIES,
    all_of,
    file_of,
    modules_of,
    package_folder,
)
from conformance.run.reuse.digests import file_digest, package_digest
from conformance.run.session import Session

EDITED = "edited during the run"
"""In place of the digest of a file that is newer than the process: it may have run the old one."""

# Verdicts that another run need not give.
_FICKLE = {Verdict.UNSTABLE, Verdict.HANG}


class Recorder:
    """Finds the modules of the cases that a session played."""

    def __init__(self) -> None:
        self._begin = time.time()
        self._reported: dict[tuple[str, str], set[str]] = {}
        self._seen: dict[tuple[str, str], int] = {}

    def modules(self, session: Session, case: CaseId, result: CaseResult) -> dict[str, str] | None:
        """Modules that were not reported before for this family and engine, with digests.

        ``None`` if the result must not be kept: it may be another one next time, and no known
        defect says so. Where the model could not be loaded, or its process ended, it is not known
        what it hangs on: any module of its library.
        """
        if result.verdict in _FICKLE and not (result.known and result.expected):
            return None
        place = (case.engine, case.family)
        subject = session.loaded(case)
        if subject is None:
            ended = result.verdict is Verdict.CRASH
            return self._of_library(case, session) if ended or session.failed(case) else None
        count = len(sys.modules)
        if self._seen.get(place) == count:
            return {}
        engine = session.registry.engines[case.engine]
        own = engine.__module__.startswith("conformance.") and engine.library in LIBRARIES
        names = modules_of(subject.model, (engine.library,) if own else LIBRARIES)
        before = self._reported.setdefault(place, set())
        new = names - before
        digests = {name: self._digest(name) for name in sorted(new)}
        before |= new
        self._seen[place] = count
        return digests

    def _of_library(self, case: CaseId, session: Session) -> dict[str, str] | None:
        library = session.registry.engines[case.engine].library
        if library not in LIBRARIES:
            return None
        folder = package_folder(library)
        files = folder.rglob("*.py") if folder else ()
        older = all(path.stat().st_mtime < self._begin for path in files)
        return {all_of(library): package_digest(library) if older else EDITED}

    def _digest(self, name: str) -> str:
        path = Path(name) if name.endswith(".py") else file_of(name)
        try:
            older = path is not None and path.stat().st_mtime < self._begin
        except OSError:  # removed during the run
            older = False
        return file_digest(path) if path is not None and older else EDITED
