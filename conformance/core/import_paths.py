"""Module paths of the package: those that stay short, and where those of the first tree went.

Installed by ``conformance/__init__.py``, before any other module of the package is imported.
"""

from __future__ import annotations

import importlib
import sys

TYPE_CHECKING = False  # more imports would be more time in which Ctrl-C is a traceback
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

PACKAGE = "conformance"

SHORT = {
    "engine": "core.engine",
    "family": "core.family",
    "faults": "core.faults",
    "hookspecs": "run.hookspecs",
    "library": "core.library",
    "pytest_plugin": "app.pytest_plugin",
    "schedule": "core.schedule",
    "suite": "app.suite",
    "trace": "core.trace",
    "verdict": "core.verdict",
}
"""Paths that plugins and command lines use, with the modules that they stand for."""

# For one release: who imports a path from before the new order of folders learns where it is.
_MOVED_TO = {
    "app": "cli",
    "app.assertion": "proving",
    "checks.expectations": "expectations",
    "core": "errors json_object options picture grammar weights numerics sensitivity failures "
    "phases sealing other_thread lingering probing schema",
    "reference.subject": "subject",
    "report.pages": "html",
    "run": "registry hosting selection coverage session runner judging diagnosis",
    "tools": "golden explore explain repro caches releases vectors smoke bench checkpoints",
    "tools.bench": "throughput",
    "tools.golden": "regeneration",
    "tools.golden.transformers_check": "independent",
    "tools.mutation": "proof",
    "tools.new_family": "adoption",
}
MOVED = {old: folder for folder, names in _MOVED_TO.items() for old in names.split()}
"""Modules and folders of the first tree that others may import, and the folder of each."""


class PathFinder:
    """Finds the short paths, and says of an old one where it went."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - the interface of importlib
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """The module that a short path stands for; ``None`` for every other path.

        Raises:
            ModuleNotFoundError: the path is one of the first tree; names its folder now.
        """
        package, _, rest = fullname.partition(".")
        if package != PACKAGE or not rest:
            return None
        first, _, inner = rest.partition(".")
        if first in MOVED:
            raise ModuleNotFoundError(
                f"{fullname} has moved to {PACKAGE}.{MOVED[first]}; change the import",
                name=fullname,
            )
        if first not in SHORT:
            return None
        util: Any = importlib.import_module("importlib.util")
        real = ".".join(filter(None, (PACKAGE, SHORT[first], inner)))
        found = util.find_spec(real)
        if found is None:
            return None
        spec: ModuleSpec = type(found)(
            fullname,
            _Alias(real),
            origin=found.origin,
            is_package=found.submodule_search_locations is not None,
        )
        spec.submodule_search_locations = found.submodule_search_locations
        return spec


class _Alias:
    """Gives a module under a second name: the same object, not a copy."""

    def __init__(self, real: str) -> None:
        self.real = real

    def create_module(self, spec: ModuleSpec) -> None:
        """See ``importlib.abc.Loader``."""

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(self.real)


def install() -> None:
    """Put our finder before the others, which would load a module of a short path a second time."""
    if not any(isinstance(finder, PathFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, PathFinder())
