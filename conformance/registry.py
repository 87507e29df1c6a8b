"""The registry: all that plugins bring, checked once and looked up by name."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

import pluggy

from conformance import hookspecs
from conformance.engine import Capability, Engine
from conformance.errors import ConformanceError, PluginError
from conformance.family import Family, load_family
from conformance.faults import Fault
from conformance.library import Library
from conformance.scenarios import Scenario

T = TypeVar("T")


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

    def families_of(self, engine: type[Engine]) -> tuple[Family, ...]:
        """The families that an engine can decode, by name."""
        return tuple(f for (library, _), f in self.families.items() if library == engine.library)

    def scenarios_for(self, engine: type[Engine]) -> tuple[Scenario, ...]:
        """The scenarios that an engine can express, in the order of the ladder."""
        return tuple(s for s in self.scenarios.values() if s.needs <= engine.capabilities)


def hook_manager(extra: Iterable[object] = ()) -> pluggy.PluginManager:
    """A plugin manager with our hooks, all installed plugins and the ``extra`` ones.

    Raises:
        PluginError: a plugin cannot be imported, or implements a hook that does not exist.
    """
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    for entry in _entry_points():
        try:
            manager.register(entry.load(), name=entry.name)
        except Exception as error:
            raise PluginError(
                f"plugin {entry.name!r} ({entry.value}) could not be loaded: "
                f"{type(error).__name__}: {error}"
            ) from error
    for plugin in extra:
        if not manager.is_registered(plugin):
            manager.register(plugin)
    try:
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        raise PluginError(f"plugin {_name(manager, error.plugin)!r}: {error}") from error
    return manager


def build_registry(
    extra: Iterable[object] = (), *, family_files: Iterable[Path] = ()
) -> Registry:
    """Collect what all plugins bring, and the families of ``family_files``.

    Raises:
        PluginError: a hook raised, returned things of a wrong type, or two plugins use one name.
        FamilyError: a family file is malformed.
    """
    manager = hook_manager(extra)
    libraries = _collect(manager, "conformance_libraries", Library)
    families = _collect(manager, "conformance_families", Family)
    engines = _collect_types(manager)
    scenarios = _collect(manager, "conformance_scenarios", Scenario)
    faults = _collect(manager, "conformance_faults", Fault)
    named = [("--family-file", load_family(path)) for path in family_files]
    replaced = {(f.facts.library, f.name) for _, f in named}
    families = [pair for pair in families if _family_key(pair[1]) not in replaced] + named
    registry = Registry(
        libraries=_unique("library", libraries, key=lambda item: item.name),
        families=dict(sorted(_unique("family", families, key=_family_key).items())),
        engines=_unique("engine", engines, key=lambda item: item.name),
        scenarios=_unique(
            "scenario", sorted(scenarios, key=lambda pair: pair[1].rung), key=lambda i: i.name
        ),
        faults=_unique("fault", faults, key=lambda item: item.name),
        plugins=tuple(Plugin(name, _origin(p)) for name, p in manager.list_name_plugin()),
    )
    _check_references(registry, named)
    return registry


def select(names: Iterable[str], patterns: Iterable[str], *, what: str) -> tuple[str, ...]:
    """Those of ``names`` that match any of the globs; all of them if there are no globs.

    Raises:
        ConformanceError: a pattern matches nothing.
    """
    known, globs = tuple(names), tuple(patterns)
    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in known):
            near = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
            raise ConformanceError(
                f"no {what} matches {glob!r}; there are {near} "
                f"(`conformance list {_plural(what)}` shows all)"
            )
    if not globs:
        return known
    return tuple(name for name in known if any(fnmatchcase(name, glob) for glob in globs))


def _plural(what: str) -> str:
    return "families" if what == "family" else f"{what}s"


def _entry_points() -> list[importlib.metadata.EntryPoint]:
    return sorted(
        importlib.metadata.entry_points(group=hookspecs.PROJECT), key=lambda entry: entry.name
    )


def _family_key(family: Family) -> tuple[str, str]:
    return (family.facts.library, family.name)


def _collect(manager: pluggy.PluginManager, hook: str, kind: type[T]) -> list[tuple[str, T]]:
    """Every object of type ``kind`` that the plugins' ``hook`` brings, with its plugin's name."""
    found: list[tuple[str, T]] = []
    for name, items in _call_each(manager, hook):
        for item in items:
            if not isinstance(item, kind):
                raise PluginError(
                    f"plugin {name!r}: {hook}() must give {kind.__name__} objects, "
                    f"gave {type(item).__name__}"
                )
            found.append((name, item))
    return found


def _collect_types(manager: pluggy.PluginManager) -> list[tuple[str, type[Engine]]]:
    found: list[tuple[str, type[Engine]]] = []
    for plugin, items in _call_each(manager, "conformance_engines"):
        for item in items:
            if not (isinstance(item, type) and issubclass(item, Engine)):
                raise PluginError(
                    f"plugin {plugin!r}: conformance_engines() must give subclasses of Engine, "
                    f"gave {item!r}"
                )
            missing = [a for a in ("name", "library", "capabilities") if not hasattr(item, a)]
            if missing or not all(isinstance(c, Capability) for c in item.capabilities):
                raise PluginError(
                    f"plugin {plugin!r}: engine {item.__name__} "
                    + (f"has no {missing[0]!r}" if missing else "declares unknown capabilities")
                )
            found.append((plugin, item))
    return found


def _call_each(manager: pluggy.PluginManager, hook: str) -> list[tuple[str, list[Any]]]:
    """The hook's results, plugin by plugin, so that an error can name its plugin."""
    results = []
    for implementation in reversed(getattr(manager.hook, hook).get_hookimpls()):
        name = implementation.plugin_name
        try:
            results.append((name, list(implementation.function())))
        except ConformanceError:
            raise
        except Exception as error:
            raise PluginError(
                f"plugin {name!r}: {hook}() raised {type(error).__name__}: {error}"
            ) from error
    return results


def _unique(what: str, pairs: Iterable[tuple[str, T]], *, key: Any) -> dict[Any, T]:  # noqa: ANN401
    found: dict[Any, tuple[str, T]] = {}
    for plugin, item in pairs:
        name = key(item)
        if name in found:
            raise PluginError(
                f"plugin {plugin!r}: {what} {name!r} exists already, "
                f"plugin {found[name][0]!r} brings it"
            )
        found[name] = (plugin, item)
    return {name: item for name, (_, item) in found.items()}


def _check_references(registry: Registry, named: list[tuple[str, Family]]) -> None:
    known = ", ".join(registry.libraries) or "none"
    for engine in registry.engines.values():
        if engine.library not in registry.libraries:
            raise PluginError(
                f"engine {engine.name!r} is for library {engine.library!r}, "
                f"which no plugin brings (there are: {known})"
            )
    for (library, name), family in registry.families.items():
        if library not in registry.libraries:
            where = family.path or ("--family-file" if named else name)
            raise PluginError(
                f"family {name!r} ({where}) is for library {library!r}, "
                f"which no plugin brings (there are: {known})"
            )


def _name(manager: pluggy.PluginManager, plugin: object) -> str:
    return manager.get_name(plugin) or repr(plugin)


def _origin(plugin: object) -> str:
    return str(getattr(plugin, "__file__", None) or getattr(plugin, "__module__", plugin))
