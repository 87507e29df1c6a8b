"""Collects and checks the results of all plugins' hooks; invalid ones are left out or refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from conformance.core.engine import Capability, Engine, PrefixReuse
from conformance.core.errors import PluginError
from conformance.core.library import Library
from conformance.core.unavailable import Unavailable
from conformance.run.hosting import Host

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
# An object, preceded by the name of its plugin.
Pairs = list[tuple[str, T]]

_NAME = re.compile(r"[\w.+-]+")
_ENGINES = "conformance_engines"
_NAMES = "conformance_engine_names"


def collect(host: Host, hook: str, kind: type[T]) -> Pairs[T]:
    """Every object of type ``kind`` that the plugins' ``hook`` returns, with its plugin's name."""
    found: Pairs[T] = []
    for plugin, items in host.call(hook):
        with host.part_of(plugin, hook):
            for item in items:
                if not isinstance(item, kind):
                    raise PluginError(
                        f"plugin {plugin!r}: {hook}() must return {kind.__name__} objects, "
                        f"returned {type(item).__name__}"
                    )
                _check_name(plugin, hook, item)
            found += ((plugin, item) for item in items)
    return found


def folders(host: Host) -> tuple[Path, ...]:
    """The folders of known defects."""
    hook = "conformance_expectations"
    found: list[Path] = []
    for plugin, items in host.call(hook):
        with host.part_of(plugin, hook):
            for folder in items:
                if not (isinstance(folder, Path) and folder.is_dir()):
                    raise PluginError(
                        f"plugin {plugin!r}: {hook}() must return paths of folders, "
                        f"returned {folder!r}"
                    )
            found += items
    return tuple(found)


def collect_engines(host: Host) -> Pairs[type[Engine]]:
    """The engines, each with its plugin's name."""
    found: Pairs[type[Engine]] = []
    names = dict(host.call(_NAMES))
    for plugin, items in host.call(_ENGINES):
        with host.part_of(plugin, _ENGINES):
            for item in items:
                if not (isinstance(item, type) and issubclass(item, Engine)):
                    raise PluginError(
                        f"plugin {plugin!r}: {_ENGINES}() must return subclasses of Engine, "
                        f"returned {item!r}"
                    )
                if problem := _engine_problem(item):
                    name = f"plugin {plugin!r}: {_ENGINES}(): class {item.__name__}"
                    raise PluginError(f"{name} {problem}")
                _check_name(plugin, _ENGINES, item)
            own = {engine.name for engine in items}
            declared = set(names.get(plugin, own))
            if own != declared and not (own < declared and host.lacks_some(plugin, _ENGINES)):
                raise PluginError(
                    f"plugin {plugin!r}: {_NAMES}() must name the engines of {_ENGINES}(): "
                    f"{', '.join(sorted(own)) or 'none'}"
                )
            found += ((plugin, item) for item in items)
    return found


def unique(
    host: Host, what: str, pairs: Iterable[tuple[str, T]], key: Callable[[T], K]
) -> dict[K, T]:
    """The objects by their keys; an object with a key that is taken is left out or refused."""
    found: dict[K, tuple[str, T]] = {}
    for plugin, item in pairs:
        first, kept = found.setdefault(key(item), (plugin, item))
        if kept is not item:
            named = f"{what} {name_of(item)!r}"
            with host.part_of(plugin, _hook_of(what), named):
                raise PluginError(
                    f"plugin {plugin!r}: {named} exists already, plugin {first!r} provides it"
                )
    return {name: item for name, (_, item) in found.items()}


def of_libraries(
    part_of: Callable[[str, str, str], AbstractContextManager[None]],
    what: str,
    users: Pairs[T],
    libraries: Collection[str],
    library_of: Callable[[T], str],
) -> Pairs[T]:
    """Objects whose library is installed; one sentence about the others of each plugin and library.

    Args:
        part_of: like ``Host.part_of``, called for each part of a plugin.
    """
    missing: dict[tuple[str, str], list[str]] = {}
    for plugin, user in users:
        if library_of(user) not in libraries:
            missing.setdefault((plugin, library_of(user)), []).append(name_of(user))
    for (plugin, library), names in missing.items():
        more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        named = f"{what} {names[0]!r}{more}"
        with part_of(plugin, _hook_of(what), named):
            raise PluginError(
                f"plugin {plugin!r}: {named} is for library {library!r}, which no plugin "
                f"provides (there are: {', '.join(sorted(libraries)) or 'none'})"
            )
    return [(plugin, user) for plugin, user in users if library_of(user) in libraries]


def with_engines(
    host: Host, libraries: Pairs[Library], engines: Mapping[str, type[Engine]]
) -> tuple[Unavailable, ...]:
    """What is left out, each with the engines that may lack it.

    These are the engines of its plugin and the engines that decode its libraries' models. The
    engines of a plugin that cannot be loaded are unknown; they may have its name.
    """
    named: dict[str, set[str]] = {}
    for hook in (_NAMES, _ENGINES):
        for plugin, names in host.call(hook):
            named.setdefault(plugin, set()).update(getattr(n, "name", n) for n in names)
    for plugin, library in libraries:
        users = {name for name, engine in engines.items() if engine.library == library.name}
        named.setdefault(plugin, set()).update(users)
    return tuple(
        replace(one, engines=one.engines or frozenset(named.get(one.plugin) or {one.plugin}))
        for one in dict.fromkeys(host.unavailable)
    )


def _hook_of(what: str) -> str:
    return f"conformance_{what[:-1]}ies" if what.endswith("y") else f"conformance_{what}s"


def _check_name(plugin: str, hook: str, item: Any) -> None:
    if not _NAME.fullmatch(item.name):
        raise PluginError(
            f"plugin {plugin!r}: {hook}(): the name {item.name!r} must be made of letters, digits "
            "and the characters _ . + -, because it becomes part of case ids"
        )


def name_of(item: Any) -> str:
    """The name of an object from a plugin."""
    name: str = item.name
    return name


def _engine_problem(engine: type[Engine]) -> str:
    """The problem with an engine class; empty if none."""
    for attribute in ("name", "library", "capabilities"):
        if not hasattr(engine, attribute):
            return f"has no attribute {attribute!r}"
    if engine.__abstractmethods__:
        return f"has no method {min(engine.__abstractmethods__)!r}"
    capabilities: object = engine.capabilities
    if not isinstance(capabilities, frozenset):
        return "must declare its capabilities as a frozenset"
    for capability in capabilities:
        if not isinstance(capability, Capability):
            return f"declares an unknown capability: {capability!r}"
    return _declaration_problem(engine)


def _declaration_problem(engine: type[Engine]) -> str:
    """The problem with attributes that have a default."""
    if not isinstance(engine.prefix_reuse, PrefixReuse):
        return "must declare prefix_reuse as a PrefixReuse"
    packages: object = engine.packages
    if not (isinstance(packages, tuple) and all(isinstance(name, str) for name in packages)):
        return "must declare packages as a tuple of names"
    return ""
