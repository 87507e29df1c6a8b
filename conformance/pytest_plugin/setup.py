"""What each process of a run needs before it can run cases: made once, kept on the config."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from pathlib import Path

import pytest

from conformance import hookspecs
from conformance.diagnosis import diagnose
from conformance.errors import ConformanceError
from conformance.expectations import Expectations, load_expectations
from conformance.pytest_plugin.options import Settings, settings
from conformance.registry import Registry, build_registry, select
from conformance.selection import DEFAULT_ENGINES, DTYPES, Selection, cases
from conformance.session import Session
from conformance.verdict import CaseId, CaseResult, Verdict


@dataclass(frozen=True)
class Setup:
    """The registry, what is selected of it, and the defects that are known.

    ``expectations`` is ``None`` where the run is to judge every case as if none were.
    """

    settings: Settings
    registry: Registry
    selection: Selection
    expectations: Expectations | None

    @functools.cached_property
    def cases(self) -> tuple[CaseId, ...]:
        """The selected cases, a family's together.

        Raises:
            ConformanceError: a glob matches nothing.
        """
        return cases(self.registry, self.selection)

    @functools.cached_property
    def session(self) -> Session:
        """This process's session; families stay loaded in it."""
        return Session(self.registry)

    def forget_session(self) -> None:
        """Begin a new session at the next case: the old one was interrupted in the middle."""
        self.__dict__.pop("session", None)

    @property
    def libraries(self) -> tuple[str, ...]:
        """The libraries of the selected engines, by name.

        Raises:
            ConformanceError: a glob matches nothing.
        """
        engines = select(self.registry.engines, self.selection.engines, what="engine")
        return tuple(sorted({self.registry.engines[name].library for name in engines}))

    def library_of(self, case: CaseId) -> str:
        """The name of the library whose model the case runs."""
        return self.registry.engines[case.engine].library

    def group_of(self, case: CaseId) -> str:
        """Cases of one group share a model and its oracle, so they belong in one process."""
        return f"{self.library_of(case)}/{case.family}"

    def judged(self, result: CaseResult) -> CaseResult:
        """``result`` with ``expected`` and ``known`` as the expectations want them."""
        if self.expectations is None:
            return result
        return self.expectations.apply(result)

    def diagnosed(self, case: CaseId, result: CaseResult) -> CaseResult:
        """``result`` of a failing case with what engines that are right by construction say."""
        if result.verdict is Verdict.HANG:
            return result
        return diagnose(self.session, case, result)


_KEY = pytest.StashKey[Setup]()


def find_setup(config: pytest.Config) -> Setup:
    """This process's setup; made at the first call.

    Raises:
        ConformanceError: a plugin, a family file, an expectations file or an option is not valid.
    """
    if _KEY not in config.stash:
        plugins = [p for p in config.pluginmanager.get_plugins() if _brings_hooks(p)]
        config.stash[_KEY] = make_setup(settings(config), plugins)
    return config.stash[_KEY]


def make_setup(given: Settings, plugins: list[object] | None = None) -> Setup:
    """The setup for ``given`` settings; ``plugins`` bring more beside the installed ones.

    Raises:
        ConformanceError: a plugin, a family file, an expectations file or an option is not valid.
    """
    return Setup(
        settings=given,
        registry=build_registry(plugins or (), family_files=given.family_files),
        selection=Selection(
            engines=given.engines or DEFAULT_ENGINES,
            families=given.families,
            scenarios=given.scenarios,
            dtypes=tuple(_dtype(name) for name in given.dtypes) or ("float32",),
            seeds=tuple(_seed(text) for text in given.seeds) or (0,),
        ),
        expectations=_expectations(given.expectations) if given.use_expectations else None,
    )


def _expectations(folder: Path | None) -> Expectations:
    if folder is not None and not folder.is_dir():
        raise ConformanceError(f"--expectations: {folder} is no folder")
    return load_expectations(folder)


def _dtype(name: str) -> str:
    if name not in DTYPES:
        raise ConformanceError(f"no dtype {name!r}; there are {', '.join(DTYPES)}")
    return name


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise ConformanceError(f"seed {text!r} is no whole number of at least 0")
    return int(text)


def _brings_hooks(plugin: object) -> bool:
    """Whether a pytest plugin, such as a user's ``conftest.py``, implements hooks of ours."""
    if plugin is hookspecs:
        return False
    marker = f"{hookspecs.PROJECT}_impl"
    names = (name for name, _ in inspect.getmembers(hookspecs, inspect.isfunction))
    found = (inspect.getattr_static(plugin, name, None) for name in names)
    return any(hasattr(function, marker) for function in found)
