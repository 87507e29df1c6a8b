"""Parts of plugins that cannot be used here: each stops only what needs it."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from conformance.core import signals

_OWN = Path(__file__).parents[1]
_NAMED = 4


@dataclass(frozen=True)
class Unavailable:
    """A part of a plugin that is left out because it could not be imported or breaks a rule.

    Attributes:
        part: names the part, such as "its engines"; empty if the whole plugin is left out.
        why: the reason, on one line.
        plugin: the plugin's name; empty until the registry has it.
        hook: the hook that failed; empty if the whole plugin is left out.
        engines: engines of the plugin or its libraries that may lack the part, by name.
    """

    part: str
    why: str
    plugin: str = ""
    hook: str = ""
    engines: frozenset[str] = frozenset()


def sentences(left_out: Iterable[Unavailable]) -> list[str]:
    """One for each plugin and reason."""
    parts: dict[tuple[str, str], list[str]] = {}
    for one in left_out:
        parts.setdefault((one.plugin, one.why), []).append(one.part)
    said = []
    for (plugin, why), names in parts.items():
        subject = f"plugin {plugin!r} is" if plugin else "this is"
        without = f"used without {', '.join(dict.fromkeys(names))}" if all(names) else "left out"
        said.append(f"{subject} {without}: {why}")
    return said


def error_text(error: BaseException) -> str:
    """Type and text of an error from foreign code, on one line."""
    if isinstance(error, signals.EscapedError) and error.__cause__ is not None:
        error = error.__cause__
    return " ".join(f"{type(error).__name__}: {error}".split())


def lacking_import(error: ImportError) -> str:
    """What to do about a package that a command needs and that cannot be imported.

    Names the module that needed it: the last one of this project in the traceback.
    """
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if Path(f.filename).is_relative_to(_OWN)] or frames
    wanted = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "a command"
    return (
        f"{error_text(error)} (wanted by {wanted}); install mlx-conformance with all that it needs"
    )


def imported(package: str, names: Iterable[str]) -> tuple[list[ModuleType], list[Unavailable]]:
    """The modules with these names in a package, and a sentence for each reason why some fail."""
    modules, failed = [], dict[str, list[str]]()
    for name in names:
        try:
            with signals.foreign_code():
                modules.append(importlib.import_module(f"{package}.{name}"))
        except Exception as error:  # noqa: BLE001 - whatever a module raises
            failed.setdefault(error_text(error), []).append(name)
    return modules, [
        Unavailable(f"{listed(parts)} of {package}", why) for why, parts in failed.items()
    ]


def engines_of(package: str, classes: Mapping[str, str]) -> list[Any]:
    """The engine classes of a package, and a sentence about each that cannot be imported.

    Args:
        classes: the ``module.Class`` in the package, by the engine's name.
    """
    found: list[Any] = []
    for engine, place in classes.items():
        module, _, name = place.partition(".")
        modules, lacking = imported(package, [module])
        found += [getattr(one, name) for one in modules]
        found += [
            Unavailable(f"its engine {engine}", one.why, engines=frozenset({engine}))
            for one in lacking
        ]
    return found


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
