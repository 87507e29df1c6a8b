"""The plugin host: finds plugins; a broken plugin is left out and reported in a sentence."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pluggy

from conformance.core import signals
from conformance.core.errors import ConformanceError, PluginError
from conformance.core.unavailable import Unavailable, error_text
from conformance.run import hookspecs

_NO_HOOK = "it implements no hook; mark its functions with conformance.hookimpl"


class Host:
    """The plugins with hooks of this project: all installed ones, and ``extra`` ones.

    A problem in an installed plugin leaves out the plugin or a part of it; in an extra plugin,
    which the user named, it ends the command.

    Attributes:
        manager: has the plugins that are in use.
        unavailable: what is left out so far.

    Raises:
        PluginError: an extra plugin implements none of the project's hooks, or a hook unknown to
            it.
    """

    def __init__(self, extra: Iterable[object] = ()) -> None:
        self.manager = pluggy.PluginManager(hookspecs.PROJECT)
        self.manager.add_hookspecs(hookspecs)
        self.unavailable: list[Unavailable] = []
        self._installed: set[str] = set()
        for entry in _entry_points():
            self._installed.add(entry.name)
            with self.part_of(entry.name):
                self._load(entry)
        for plugin in extra:
            if not self.manager.is_registered(plugin):
                _register(self.manager, plugin, None)
        self._check_hooks()

    @contextlib.contextmanager
    def part_of(self, plugin: str, hook: str = "", part: str = "") -> Iterator[None]:
        """Context for making one part: a problem in an installed plugin leaves the part out.

        Args:
            hook: the hook that returns the part; empty for the whole plugin.
            part: names the part; by default everything that the hook returns.
        """
        try:
            yield
        except PluginError as error:
            if plugin not in self._installed:
                raise
            cause = error.__cause__ if hook else None
            text = str(error).removeprefix(f"plugin {plugin!r}").lstrip(": ")
            why = error_text(cause) if cause else text.removeprefix(f"{part} ")
            given = hook.removeprefix("conformance_").replace("_", " ")
            named = part or (f"its {given}" if hook else "")
            self.unavailable.append(Unavailable(named, why, plugin, hook))

    def call(self, hook: str) -> list[tuple[str, list[Any]]]:
        """The hook's results, plugin by plugin in the order in which they were registered.

        Each implementation is called separately, so that an error can name its plugin.
        """
        results = []
        for implementation in getattr(self.manager.hook, hook).get_hookimpls():
            plugin = implementation.plugin_name
            with self.part_of(plugin, hook):
                items = _called(plugin, hook, implementation.function)
                found = [item for item in items if not isinstance(item, Unavailable)]
                lacking = [item for item in items if isinstance(item, Unavailable)]
                self.unavailable += (replace(one, plugin=plugin, hook=hook) for one in lacking)
                results.append((plugin, found))
        return results

    def lacks_some(self, plugin: str, hook: str) -> bool:
        """Whether the plugin itself says that something of a hook is left out here."""
        return any((one.plugin, one.hook) == (plugin, hook) for one in self.unavailable)

    def _load(self, entry: importlib.metadata.EntryPoint) -> None:
        try:
            with signals.foreign_code():
                plugin = entry.load()
        except Exception as error:
            raise PluginError(
                f"plugin {entry.name!r} ({entry.value}) could not be loaded: {error_text(error)}"
            ) from error
        _register(self.manager, plugin, entry.name)

    def _check_hooks(self) -> None:
        """Leave out, or refuse, plugins with unknown hooks."""
        while True:
            try:
                self.manager.check_pending()
            except pluggy.PluginValidationError as error:
                name = self.manager.get_name(error.plugin) or repr(error.plugin)
                hooks = ", ".join(sorted(vars(self.manager.hook)))
                with self.part_of(name):
                    raise PluginError(
                        f"plugin {name!r}: {error_text(error)}; the hooks are {hooks}"
                    ) from error
                self.manager.unregister(error.plugin)
            else:
                return


def _called(plugin: str, hook: str, function: Callable[[], Iterable[Any]]) -> list[Any]:
    try:
        with signals.foreign_code():
            return list(function())
    except ConformanceError as error:
        raise PluginError(f"plugin {plugin!r}: {hook}(): {error}") from error
    except Exception as error:
        raise PluginError(f"plugin {plugin!r}: {hook}() raised {error_text(error)}") from error


def load_plugins(names: Iterable[str]) -> list[object]:
    """The modules with these names, from the current folder or installed.

    Raises:
        PluginError: there is no such module, or it can't be imported.
    """
    return [_load_plugin(name, Path.cwd()) for name in names]


def _load_plugin(name: str, folder: Path) -> object:
    sys.path.insert(0, str(folder))
    try:
        with signals.foreign_code():
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise PluginError(f"plugin {name!r} needs {error_text(error)}") from error
        is_file = " (a module is named without .py)" if name.endswith(".py") else ""
        raise PluginError(
            f"-p {name}: there is no module of that name in {folder}, and none installed{is_file}"
        ) from error
    except Exception as error:
        raise PluginError(f"plugin {name!r} could not be loaded: {error_text(error)}") from error
    finally:
        sys.path.remove(str(folder))


def origin(plugin: object) -> str:
    """The origin of a plugin: its file or its module."""
    return str(getattr(plugin, "__file__", None) or getattr(plugin, "__module__", plugin))


def _entry_points() -> list[importlib.metadata.EntryPoint]:
    return sorted(
        importlib.metadata.entry_points(group=hookspecs.PROJECT), key=lambda entry: entry.name
    )


def _register(manager: pluggy.PluginManager, plugin: object, name: str | None) -> None:
    shown = name or manager.get_canonical_name(plugin)
    try:
        manager.register(plugin, name=name)
    except (pluggy.PluginValidationError, ValueError) as error:
        raise PluginError(f"plugin {shown!r} ({origin(plugin)}): {error_text(error)}") from error
    if not manager.get_hookcallers(plugin):
        manager.unregister(plugin)
        raise PluginError(f"plugin {shown!r} ({origin(plugin)}): {_NO_HOOK}")


def brings_hooks(plugin: object) -> bool:
    """Whether a pytest plugin, such as a ``conftest.py``, implements hooks of this project."""
    if plugin is hookspecs:
        return False
    marker = f"{hookspecs.PROJECT}_impl"
    names = (name for name, _ in inspect.getmembers(hookspecs, inspect.isfunction))
    found = (inspect.getattr_static(plugin, name, None) for name in names)
    return any(hasattr(function, marker) for function in found)
