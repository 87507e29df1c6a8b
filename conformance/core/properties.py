"""Properties of a library's functions that need no model: results compared with a definition."""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import ModuleType

from conformance.core.unavailable import Unavailable, error_text, imported

_SUFFIX = "_properties"


@dataclass(frozen=True)
class Property:
    """The required results of a library's functions, for drawn arguments.

    Attributes:
        name: as ``samplers: top-p``.
        module: the functions' file, as ``mlx_vlm/sample_utils.py``; a glob.
        functions: the functions it covers, as ``APCManager.*``; globs.
        problems: calls them, and yields a sentence for each difference.
    """

    name: str
    module: str
    functions: tuple[str, ...]
    problems: Callable[[], Iterable[str]]

    def is_about(self, module: str, function: str) -> bool:
        """Whether the property covers that function."""
        return fnmatchcase(module, self.module) and any(
            fnmatchcase(function, glob) for glob in self.functions
        )

    def problem(self) -> str:
        """The first difference or raised error; empty if there is none."""
        try:
            return next(iter(self.problems()), "")
        except Exception as error:  # noqa: BLE001 - whatever a library raises
            return f"{type(error).__name__}: {error}"


def properties_in(package: str) -> list[Property | Unavailable]:
    """Collect the results of the functions ``*_properties`` in all modules of an imported package.

    A module that cannot be imported, or whose function raises, is left out; a sentence for each
    such reason comes last.
    """
    modules, lacking = _modules_below(package)
    found: list[Property] = []
    for module in modules:
        for name, make in sorted(vars(module).items()):
            if name.endswith(_SUFFIX) and getattr(make, "__module__", "") == module.__name__:
                try:
                    found += make()
                except Exception as error:  # noqa: BLE001 - whatever a library raises
                    lacking.append(Unavailable(f"{name} of {module.__name__}", error_text(error)))
    return [*found, *lacking]


def _modules_below(package: str) -> tuple[list[ModuleType], list[Unavailable]]:
    below = list(pkgutil.iter_modules(sys.modules[package].__path__))
    modules, lacking = imported(package, [one.name for one in below])
    inside = [f"{package}.{one.name}" for one in below if one.ispkg]
    for name in (name for name in inside if name in sys.modules):
        more, also = _modules_below(name)
        modules += more
        lacking += also
    return modules, lacking
