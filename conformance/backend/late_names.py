"""A package imported without some of what its modules import: that is imported when it is used.

For names that a package takes with ``from x import y`` and does not use while it is imported. Any
other name, or any use, while it is imported makes it be imported as usual.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Collection, Mapping
from types import ModuleType
from typing import Any, Union


class LateName:
    """Stands for a name of a module, which is imported at the first use.

    Calls, ``isinstance``, ``issubclass``, base classes and attributes are those of the real thing;
    it then takes its own place in all modules that had imported it.
    """

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name
        self._places: list[tuple[dict[str, Any], str]] = []
        self._ready = self._too_early = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the real thing returns."""
        return self._real()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if not self._ready and name.startswith("__"):  # ``typing`` asks every annotation for some
            raise AttributeError(name)
        return getattr(self._real(), name)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self._real())

    def __subclasscheck__(self, subclass: type) -> bool:
        return issubclass(subclass, self._real())

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[Any, ...]:
        return (self._real(),)

    def __or__(self, other: Any) -> Any:
        return Union[self, other]  # noqa: UP007

    def __ror__(self, other: Any) -> Any:
        return Union[other, self]  # noqa: UP007

    def _real(self) -> Any:
        if not self._ready:
            self._too_early = True
            raise ImportError(f"{self._module}.{self._name} is used while its user is imported")
        real = getattr(importlib.import_module(self._module), self._name)
        for names, name in self._places:
            if names.get(name) is self:
                names[name] = real
        return real

    def _settle(self, modules: Collection[ModuleType]) -> None:
        """Note where it is, and that it may be used."""
        self._ready = True
        for module in modules:
            self._places += [(vars(module), k) for k, v in vars(module).items() if v is self]


class _StandIn(ModuleType):
    """A module of which only some names can be imported; nothing else is asked of it."""

    def __init__(self, module: str, names: Collection[str]) -> None:
        super().__init__(module)
        self._late = {name: LateName(module, name) for name in names}
        self._asked_more = False

    @property
    def sufficed(self) -> bool:
        """Whether its names were all that was asked for, and none was used at once."""
        return not (self._asked_more or any(name._too_early for name in self._late.values()))

    def settle(self, modules: Collection[ModuleType]) -> None:
        """All of ``modules`` are imported: from now on the names may be used."""
        for name in self._late.values():
            name._settle(modules)

    def __getattr__(self, name: str) -> Any:
        if name in self._late:
            return self._late[name]
        self._asked_more = self._asked_more or name != "__path__"
        raise AttributeError(name)


def import_with_late_names(package: str, late: Mapping[str, Collection[str]]) -> None:
    """Import ``package``; each of the ``late`` modules' names is imported at its first use.

    It does nothing where that saves nothing or where the package can't be imported: an ``import``
    that follows says why. Modules of the package among those of ``late`` are lazy modules later.
    """
    if package in sys.modules or any(module in sys.modules for module in late):
        return
    stand_ins = {module: _StandIn(module, names) for module, names in late.items()}
    sys.modules.update(stand_ins)
    imported = False
    try:
        with contextlib.suppress(Exception, SystemExit):
            importlib.import_module(package)
            imported = all(one.sufficed for one in stand_ins.values())
    finally:
        for module, one in stand_ins.items():
            if sys.modules.get(module) is one:
                del sys.modules[module]
        inside = [name for name in sys.modules if f"{name}.".startswith(f"{package}.")]
        if not imported:  # with the next import all is as usual
            for name in inside:
                del sys.modules[name]
    if imported:
        modules = [sys.modules[name] for name in inside]
        for one in stand_ins.values():
            one.settle(modules)
        for module in late:
            if module.startswith(f"{package}."):
                _make_lazy(module)


def _make_lazy(module: str) -> None:
    """Put the module where an import of it would, to be run when anything of it is used."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.loader is None:
        return
    spec.loader = importlib.util.LazyLoader(spec.loader)
    found = importlib.util.module_from_spec(spec)
    sys.modules[module] = found
    spec.loader.exec_module(found)
    parent, _, name = module.rpartition(".")
    setattr(sys.modules[parent], name, found)
