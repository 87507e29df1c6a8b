"""The registry: everything that plugins provide, checked once and looked up by name."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

import pluggy

from conformance.core.engine import Engine, equipped
from conformance.core.engine_globs import means
from conformance.core.errors import ConformanceError, PluginError
from conformance.core.family import Family, load_family
from conformance.core.faults import Fault
from conformance.core.library import Library
from conformance.core.library_source import versions_of
from conformance.core.mends import Mend
from conformance.core.nearest import did_you_mean
from conformance.core.verdict import CaseId
from conformance.run.engine_classes import engine_problem
from conformance.run.hosting import error_text, hook_manager, origin
from conformance.scenarios import Scenario

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

_NAME = re.compile(r"[\w.+-]+")


@dataclass(frozen=True)
class Plugin:
    """A loaded plugin and where it came from."""

    name: str
    origin: str


@dataclass(frozen=True)
class Registry:
    """Everything that can be run, by name."""

    libraries: Mapping[str, Library]
    families: Mapping[tuple[str, str], Family]
    engines: Mapping[str, type[Engine]]
    scenarios: Mapping[str, Scenario]
    faults: Mapping[str, Fault]
    plugins: tuple[Plugin, ...]
    mends: Mapping[str, Mend] = field(default_factory=dict)
    expectations: tuple[Path, ...] = ()

    def versions_of(self, engine: str) -> dict[str, str]:
        """What made an engine's results: versions of its library, and of packages of its own."""
        kind = self.engines[engine]
        found = dict(self.libraries[kind.library].versions())
        for package in kind.packages:
            found |= versions_of(package)
        return found

    def mend_of(self, defect: str) -> Mend | None:
        """The mend of the known defect with that id."""
        return next((mend for mend in self.mends.values() if defect in mend.defects), None)

    def families_of(self, engine: type[Engine]) -> tuple[Family, ...]:
        """The families that an engine can decode, by name."""
        return tuple(f for (library, _), f in self.families.items() if library == engine.library)

    def family_of(self, case: CaseId) -> Family:
        """The family of a case, as its engine plays it."""
        kind = self.engines[case.engine]
        return kind.variant(self.families[kind.library, case.family])

    def scenarios_for(
        self, engine: type[Engine], family: Family | None = None
    ) -> tuple[Scenario, ...]:
        """The scenarios that an engine can express, in the order of the ladder.

        With ``family``, only those that apply to it.
        """
        return tuple(
            scenario
            for scenario in self.scenarios.values()
            if not scenario.lacking(engine.capabilities)
            if family is None or not scenario.applies(equipped(family, engine))
        )

    def left_out(self, engine: type[Engine], family: Family) -> dict[str, str]:
        """The other scenarios, by name: why each does not apply to this family on this engine."""
        reasons = {}
        for scenario in self.scenarios.values():
            reason = scenario.lacking(engine.capabilities)
            reason = reason or scenario.applies(equipped(family, engine))
            if reason:
                reasons[scenario.name] = reason
        return reasons


def build_registry(
    extra: Iterable[object] = (),
    *,
    family_files: Iterable[Path] = (),
    engines: Iterable[str] = (),
) -> Registry:
    """Collect what all plugins provide, and the families of ``family_files``.

    A family file replaces a plugin's family of the same name and library.

    Args:
        extra: plugins beside the installed ones.
        engines: globs of those that are wanted. Plugins that name their engines, and none of
            these, are left out, unless what the others provide is for their libraries.

    Raises:
        PluginError: a hook raised, returned things of a wrong type or with a bad name, two plugins
            use one name, or a library is missing. Names the plugin.
        FamilyError: one of ``family_files`` is malformed.
    """
    extra, family_files, globs = tuple(extra), tuple(family_files), tuple(engines)
    manager = hook_manager(extra)
    if left_out := _without(manager, globs):
        for plugin in left_out:
            manager.unregister(plugin)
        with contextlib.suppress(PluginError):  # a real one is raised again below
            found = _registry(manager, family_files)
            if all(any(means(glob, name) for name in found.engines) for glob in globs):
                return found
        manager = hook_manager(extra)
    return _registry(manager, family_files)


def _without(manager: pluggy.PluginManager, globs: tuple[str, ...]) -> list[object]:
    """The plugins whose engines are known by name, and none of them is wanted."""
    named = _call_each(manager, "conformance_engine_names") if globs else []
    return [
        manager.get_plugin(plugin)
        for plugin, names in named
        if not any(means(glob, name) for name in names for glob in globs)
    ]


def _registry(manager: pluggy.PluginManager, family_files: tuple[Path, ...]) -> Registry:
    libraries = _collect(manager, "conformance_libraries", Library)  # type: ignore[type-abstract]
    families = _collect(manager, "conformance_families", Family)
    engines = _collect_engines(manager)
    scenarios = _collect(manager, "conformance_scenarios", Scenario)
    faults = _collect(manager, "conformance_faults", Fault)
    mends = _collect(manager, "conformance_mends", Mend)
    named = [("--family-file", load_family(path)) for path in family_files]
    replaced = {_family_key(family) for _, family in named}
    families = [pair for pair in families if _family_key(pair[1]) not in replaced] + named
    names = {library.name for _, library in libraries}
    _check_libraries("engine", [(p, e.name, e.library) for p, e in engines], names)
    _check_libraries("family", [(p, f.name, f.facts.library) for p, f in families], names)
    return Registry(
        libraries=_unique("library", libraries, key=_item_name),
        families=dict(sorted(_unique("family", families, key=_family_key).items())),
        engines=_unique("engine", engines, key=_item_name),
        scenarios=_unique(
            "scenario", sorted(scenarios, key=lambda pair: pair[1].rung), key=_item_name
        ),
        faults=_unique("fault", faults, key=lambda fault: fault.key),
        mends=_unique("mend", mends, key=lambda mend: mend.key),
        expectations=_folders(manager),
        plugins=tuple(Plugin(name, origin(p)) for name, p in manager.list_name_plugin()),
    )


def select(names: Iterable[str], patterns: Iterable[str], *, what: str) -> tuple[str, ...]:
    """Those of ``names`` that match any of the globs; all of them if there are no globs.

    Raises:
        ConformanceError: a pattern matches nothing.
    """
    known, globs = tuple(names), tuple(patterns)
    matches = means if what == "engine" else lambda glob, name: fnmatchcase(name, glob)
    for glob in globs:
        if not any(matches(glob, name) for name in known):
            some = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
            near = did_you_mean(glob, known)
            there = near or f"; there are {some}"
            raise ConformanceError(f"no {what} matches {glob!r}{there}{_hint(what)}")
    if not globs:
        return known
    return tuple(name for name in known if any(matches(glob, name) for glob in globs))


def _hint(what: str) -> str:
    """The command that lists all names of a kind, if there is one."""
    listed = {"engine": "engines", "family": "families", "scenario": "scenarios"}.get(what)
    return f" (`conformance show {listed}` shows all)" if listed else ""


def _collect(manager: pluggy.PluginManager, hook: str, kind: type[T]) -> list[tuple[str, T]]:
    """Every object of type ``kind`` that the plugins' ``hook`` returns, with its plugin's name."""
    found: list[tuple[str, T]] = []
    for plugin, items in _call_each(manager, hook):
        for item in items:
            if not isinstance(item, kind):
                raise PluginError(
                    f"plugin {plugin!r}: {hook}() must return {kind.__name__} objects, "
                    f"returned {type(item).__name__}"
                )
            _check_name(plugin, hook, item)
            found.append((plugin, item))
    return found


def _folders(manager: pluggy.PluginManager) -> tuple[Path, ...]:
    """The folders of known defects."""
    found = _call_each(manager, "conformance_expectations")
    for plugin, folders in found:
        for folder in folders:
            if not (isinstance(folder, Path) and folder.is_dir()):
                raise PluginError(
                    f"plugin {plugin!r}: conformance_expectations() must return paths of folders, "
                    f"returned {folder!r}"
                )
    return tuple(folder for _, folders in found for folder in folders)


def _collect_engines(manager: pluggy.PluginManager) -> list[tuple[str, type[Engine]]]:
    hook = "conformance_engines"
    found: list[tuple[str, type[Engine]]] = []
    for plugin, items in _call_each(manager, hook):
        for item in items:
            if not (isinstance(item, type) and issubclass(item, Engine)):
                raise PluginError(
                    f"plugin {plugin!r}: {hook}() must return subclasses of Engine, "
                    f"returned {item!r}"
                )
            problem = engine_problem(item)
            if problem:
                raise PluginError(f"plugin {plugin!r}: {hook}(): class {item.__name__} {problem}")
            _check_name(plugin, hook, item)
            found.append((plugin, item))
    for plugin, names in _call_each(manager, "conformance_engine_names"):
        own = {engine.name for provider, engine in found if provider == plugin}
        if own != set(names):
            raise PluginError(
                f"plugin {plugin!r}: conformance_engine_names() must name the engines of {hook}(): "
                f"{', '.join(sorted(own)) or 'none'}"
            )
    return found


def _call_each(manager: pluggy.PluginManager, hook: str) -> list[tuple[str, list[Any]]]:
    """The hook's results, plugin by plugin in the order in which they were registered.

    Each implementation is called separately, so that an error can name its plugin.
    """
    results = []
    for implementation in getattr(manager.hook, hook).get_hookimpls():
        plugin = implementation.plugin_name
        try:
            results.append((plugin, list(implementation.function())))
        except ConformanceError as error:
            raise PluginError(f"plugin {plugin!r}: {hook}(): {error}") from error
        except (Exception, SystemExit) as error:  # as in ``hook_manager``
            raise PluginError(f"plugin {plugin!r}: {hook}() raised {error_text(error)}") from error
    return results


def _check_name(plugin: str, hook: str, item: Any) -> None:
    if not _NAME.fullmatch(item.name):
        raise PluginError(
            f"plugin {plugin!r}: {hook}(): the name {item.name!r} must be made of letters, digits "
            "and the characters _ . + -, because it becomes part of case ids"
        )


def _unique(what: str, pairs: Iterable[tuple[str, T]], *, key: Callable[[T], K]) -> dict[K, T]:
    found: dict[K, tuple[str, T]] = {}
    for plugin, item in pairs:
        first, _ = found.setdefault(key(item), (plugin, item))
        if found[key(item)][1] is not item:
            raise PluginError(
                f"plugin {plugin!r}: {what} {_item_name(item)!r} exists already, "
                f"plugin {first!r} provides it"
            )
    return {name: item for name, (_, item) in found.items()}


def _check_libraries(
    what: str, users: Iterable[tuple[str, str, str]], libraries: Collection[str]
) -> None:
    for plugin, name, library in users:
        if library not in libraries:
            raise PluginError(
                f"plugin {plugin!r}: {what} {name!r} is for library {library!r}, which no plugin "
                f"provides (there are: {', '.join(sorted(libraries)) or 'none'})"
            )


def _family_key(family: Family) -> tuple[str, str]:
    return (family.facts.library, family.name)


def _item_name(item: Any) -> str:
    name: str = item.name
    return name
