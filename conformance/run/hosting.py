"""The plugin host: finds plugins, and reports a broken one in one sentence."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import sys
from collections.abc import Iterable
from pathlib import Path

import pluggy

from conformance.core.errors import PluginError
from conformance.run import hookspecs

_NO_HOOK = "it implements no hook; mark its functions with conformance.hookimpl"


def hook_manager(extra: Iterable[object] = ()) -> pluggy.PluginManager:
    """A plugin manager with our hooks, all installed plugins and the ``extra`` ones.

    Raises:
        PluginError: a plugin cannot be imported, implements none of our hooks, or implements one
            that does not exist.
    """
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    for entry in _entry_points():
        try:
            plugin = entry.load()
        except (Exception, SystemExit) as error:  # some modules exit where a package is missing
            raise PluginError(
                f"plugin {entry.name!r} ({entry.value}) could not be loaded: {error_text(error)}"
            ) from error
        _register(manager, plugin, entry.name)
        if not manager.get_hookcallers(plugin):
            raise PluginError(f"plugin {entry.name!r} ({entry.value}): {_NO_HOOK}")
    for plugin in extra:
        if not manager.is_registered(plugin):
            _register(manager, plugin, None)
            if not manager.get_hookcallers(plugin):
                raise PluginError(f"plugin {origin(plugin)}: {_NO_HOOK}")
    try:
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        raise PluginError(
            f"plugin {_name(manager, error.plugin)!r}: {error_text(error)}; the hooks are "
            + ", ".join(sorted(vars(manager.hook)))
        ) from error
    return manager


def load_plugins(names: Iterable[str]) -> list[object]:
    """The modules of these names, of the current folder or installed.

    Raises:
        PluginError: there is no such module, or it can't be imported.
    """
    return [_load_plugin(name, Path.cwd()) for name in names]


def _load_plugin(name: str, folder: Path) -> object:
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise PluginError(f"plugin {name!r} needs {error_text(error)}") from error
        is_file = " (a module is named without .py)" if name.endswith(".py") else ""
        raise PluginError(
            f"-p {name}: there is no module of that name in {folder}, and none installed{is_file}"
        ) from error
    except (Exception, SystemExit) as error:
        raise PluginError(f"plugin {name!r} could not be loaded: {error_text(error)}") from error
    finally:
        sys.path.remove(str(folder))


def error_text(error: BaseException) -> str:
    """Type and text of an error, on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def origin(plugin: object) -> str:
    """Where a plugin comes from: its file, or its module."""
    return str(getattr(plugin, "__file__", None) or getattr(plugin, "__module__", plugin))


def _entry_points() -> list[importlib.metadata.EntryPoint]:
    return sorted(
        importlib.metadata.entry_points(group=hookspecs.PROJECT), key=lambda entry: entry.name
    )


def _register(manager: pluggy.PluginManager, plugin: object, name: str | None) -> None:
    try:
        manager.register(plugin, name=name)
    except (pluggy.PluginValidationError, ValueError) as error:
        shown = name or manager.get_canonical_name(plugin)
        raise PluginError(f"plugin {shown!r} ({origin(plugin)}): {error_text(error)}") from error


def _name(manager: pluggy.PluginManager, plugin: object) -> str:
    return manager.get_name(plugin) or repr(plugin)


def brings_hooks(plugin: object) -> bool:
    """Whether a pytest plugin, such as a user's ``conftest.py``, implements hooks of ours."""
    if plugin is hookspecs:
        return False
    marker = f"{hookspecs.PROJECT}_impl"
    names = (name for name, _ in inspect.getmembers(hookspecs, inspect.isfunction))
    found = (inspect.getattr_static(plugin, name, None) for name in names)
    return any(hasattr(function, marker) for function in found)
