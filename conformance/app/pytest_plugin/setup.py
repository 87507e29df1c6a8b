"""What each process of a run needs before it can run cases: made once, stored on the config."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from conformance.app.pytest_plugin.options import settings
from conformance.app.run_settings import Settings
from conformance.checks.expectations import Expectations, load_expectations
from conformance.core.content_keys import digest, file_digest
from conformance.core.errors import ConformanceError
from conformance.core.family import Family
from conformance.core.library import Library
from conformance.core.names import FULL
from conformance.core.unavailable import sentences
from conformance.core.user_cache import user_cache
from conformance.core.verdict import CaseId
from conformance.reference.family_store import FamilyStore
from conformance.reference.oracle_key import oracle_key
from conformance.reference.store import folder_of, sweep
from conformance.reference.surroundings import Environment
from conformance.run.case_judge import CaseJudge
from conformance.run.family_seconds import FamilySeconds
from conformance.run.hosting import brings_hooks, load_plugins
from conformance.run.registry import Registry, build_registry
from conformance.run.reuse.dependencies import local_modules
from conformance.run.reuse.dependency_recorder import Recorder
from conformance.run.reuse.opened_files import watch
from conformance.run.reuse.result_store import ResultStore
from conformance.run.selection import (
    DEFAULT_ENGINES,
    Selection,
    Shard,
    cases,
    known_dtype,
    seed_number,
)
from conformance.run.session import Session
from conformance.run.tiers import COSTLY, tier
from conformance.tools.checkpoints.opening import Held, hold, open_checkpoint

_PATIENCE = 4
"""How many timeouts a costly scenario may take."""


@dataclass(frozen=True)
class Setup:
    """The registry, the selection from it, and the known defects.

    ``expectations`` is ``None`` if every case is judged as if no defect were known. ``notes``
    are sentences for the user before the run: about a checkpoint, and what is left out.
    """

    settings: Settings
    registry: Registry
    selection: Selection
    expectations: Expectations | None
    notes: tuple[str, ...] = ()

    @functools.cached_property
    def cases(self) -> tuple[CaseId, ...]:
        """The cases to run: the selected ones that are in the file of cases, if there is one.

        Raises:
            ConformanceError: a glob matches nothing, or the file cannot be read.
        """
        if self.settings.cases is None:
            return self.selected
        wanted = _lines(self.settings.cases)
        return tuple(case for case in self.selected if str(case) in wanted)

    @functools.cached_property
    def selected(self) -> tuple[CaseId, ...]:
        """The selected cases, a family's together; empty if there are fewer families than shards.

        Raises:
            ConformanceError: a glob matches nothing.
        """
        found = cases(self.registry, self.selection)
        return self.selection.shard.of(found, self.group_of, self.seconds)

    @functools.cached_property
    def seconds(self) -> FamilySeconds:
        """The recorded seconds of the groups of cases."""
        return FamilySeconds.load()

    @functools.cached_property
    def result_folder(self) -> Path:
        """The folder that keeps results between runs."""
        return user_cache() / "results"

    @property
    def environment(self) -> Environment:
        """The installation and settings before this process imported a library."""
        return Environment.first()

    def result_store(self) -> ResultStore:
        """The results of earlier runs that are on disk now."""
        return ResultStore(self.result_folder, self.environment, self.settings.plugins)

    @functools.cached_property
    def recorder(self) -> Recorder:
        """Records what the cases of this process depend on."""
        deciding = (*self.settings.family_files, self.settings.expectations, self.settings.cases)
        return Recorder(self.environment, {str(path.absolute()) for path in deciding if path})

    def selects(self, case: CaseId) -> bool:
        """Whether a case of another run would belong to this one, if its names still exist.

        A shard's families depend on all families, so only the shard's own cases belong to it.
        """
        families = {own.family for own in self.cases} if self.settings.shard else {case.family}
        return self.selection.matches(case) and case.family in families and self._plays(case)

    def _plays(self, case: CaseId) -> bool:
        """Whether the tier includes the case, if the case still exists."""
        engine = self.registry.engines.get(case.engine)
        family = self.registry.families.get((engine.library, case.family)) if engine else None
        return family is None or self.selection.tier.plays(family, case.scenario)

    @functools.cached_property
    def session(self) -> Session:
        """This process's session; families stay loaded in it."""
        return Session(self.registry, tier=self.selection.tier, store=self.store)

    @functools.cached_property
    def judge(self) -> CaseJudge:
        """Judges the cases of this process; a checkpoint's are not run mended, which takes long."""
        mends = self.settings.mends and self.settings.checkpoint is None
        return CaseJudge(self.session, self.expectations, mends=mends, cases=self.selected)

    @functools.cached_property
    def store(self) -> FamilyStore | None:
        """The store that keeps oracles of tiny families between runs, if there is one."""
        if not self.settings.oracle_cache:
            return None
        return FamilyStore(user_cache() / "families", self._stream_key)

    def _stream_key(self, library: Library, family: Family, dtype: str, seed: int) -> str | None:
        """The key of stored streams; a plugin or conftest of the user may patch a library."""
        key = oracle_key(library, family, dtype, seed)
        return key and digest(part.encode() for part in (key, *self._brought))

    @functools.cached_property
    def _brought(self) -> tuple[str, ...]:
        """The texts of modules that are neither installed nor part of this project, by name."""
        files = sorted(set(local_modules(self.environment)))
        return tuple(f"{path.name} {file_digest(path)}" for path in files)

    def take_reports(self) -> list[str]:
        """Sentences about stored oracles that could not be used, since the last call."""
        reports = self.store.reports if self.store is not None else []
        taken = list(reports)
        reports.clear()
        return taken

    def sweep(self) -> list[str]:
        """Remove damaged files from a checkpoint's stored oracle; return a sentence for each."""
        real = [family.checkpoint for family in self.registry.families.values()]
        kept = {folder_of(Path(c.cache), c.digest) for c in real if c is not None}
        return [line for folder in sorted(kept) for line in sweep(folder)]

    def hold_goldens(self) -> list[Held]:
        """Compare a checkpoint with its golden for each library, if the user names a folder.

        Raises:
            ConformanceError: this needs more memory than available, or a golden can't be written.
        """
        given = self.settings.checkpoint
        if given is None or given.golden is None:
            return []
        return [
            hold(
                self.registry.libraries[library],
                self.registry.families[library, self.selection.families[0]],
                given.golden,
                engines=[self.registry.engines[name] for name in self.engines],
                expectations=self.expectations,
                force=given.force,
            )
            for library in self.libraries
        ]

    def forget_session(self) -> None:
        """Begin a new session at the next case, since the old one was interrupted midway."""
        self.__dict__.pop("session", None)
        self.__dict__.pop("judge", None)

    @property
    def engines(self) -> tuple[str, ...]:
        """The selected engines.

        Raises:
            ConformanceError: a glob matches nothing.
        """
        return self.registry.select_engines(self.selection.engines)

    @property
    def libraries(self) -> tuple[str, ...]:
        """The libraries of the selected engines, by name.

        Raises:
            ConformanceError: a glob matches nothing.
        """
        return tuple(sorted({self.registry.engines[name].library for name in self.engines}))

    @property
    def complete(self) -> bool:
        """Whether the run includes all cases of its engines; unmatched expectations are stale."""
        whole = not any(map(self.selection.tier.leaves_out, self.libraries))
        return self.selection.whole and whole

    def timeout_of(self, case: CaseId) -> float:
        """Seconds after which the case is stopped as a hang; 0 if never."""
        return self.settings.timeout * (_PATIENCE if case.scenario in COSTLY else 1)

    def library_of(self, case: CaseId) -> str:
        """The name of the library whose model the case runs."""
        return self.registry.engines[case.engine].library

    def group_of(self, case: CaseId) -> str:
        """See ``Registry.group_of``."""
        return self.registry.group_of(case)


_KEY = pytest.StashKey[Setup]()


def find_setup(config: pytest.Config) -> Setup:
    """This process's setup, made at the first call.

    Raises:
        ConformanceError: a plugin, a family file, an expectations file or an option is not valid.
    """
    if _KEY not in config.stash:
        plugins = [p for p in config.pluginmanager.get_plugins() if brings_hooks(p)]
        config.stash[_KEY] = make_setup(settings(config), plugins)
    return config.stash[_KEY]


def make_setup(given: Settings, plugins: list[object] | None = None) -> Setup:
    """The setup for ``given`` settings; ``plugins`` are added to the installed ones.

    Raises:
        ConformanceError: a plugin, a family file, an expectations file or an option is not valid.
    """
    Environment.first()  # before a plugin imports a library
    watch()
    # The engine for a checkpoint is not known yet.
    wanted = given.engines or (() if given.checkpoint else DEFAULT_ENGINES)
    registry = build_registry(
        [*(plugins or ()), *load_plugins(given.plugins)],
        family_files=given.family_files,
        engines=wanted,
    )
    selection = Selection(
        engines=given.engines or registry.usual_engines(DEFAULT_ENGINES),
        families=given.families,
        scenarios=given.scenarios,
        dtypes=tuple(known_dtype(name) for name in given.dtypes),
        seeds=tuple(seed_number(text) for text in given.seeds) or (0,),
        shard=Shard.parse(given.shard),
        tier=tier(given.tier),
    )
    notes = tuple(sentences(registry.unavailable))
    if given.checkpoint is not None:
        if given.families:
            raise ConformanceError("--model is a family of its own: leave --family out")
        opened = open_checkpoint(registry, given.checkpoint, given.engines, selection.dtypes)
        registry, notes = opened.registry, (*notes, *opened.notes)
        selection = replace(
            selection,
            engines=opened.engines,
            families=(opened.name,),
            dtypes=selection.dtypes or (opened.dtype,),
        )
    known = given.expectations, registry.expectations
    named = given.tier == FULL and (given.families or given.scenarios)
    return Setup(
        settings=given,
        registry=registry,
        selection=replace(
            selection,
            dtypes=selection.dtypes or ("float32",),
            half=not (given.dtypes or named),
        ),
        expectations=load_expectations(*known) if given.use_expectations else None,
        notes=notes,
    )


def _lines(path: Path) -> frozenset[str]:
    try:
        return frozenset(path.read_text(encoding="utf-8").split())
    except (OSError, UnicodeDecodeError) as error:
        raise ConformanceError(f"{path}: cannot read the cases: {error}") from error
