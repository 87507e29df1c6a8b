"""What cannot be used here: parts of plugins, and system libraries that a processor needs."""

from __future__ import annotations

import importlib
import re
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from conformance.core import signals
from conformance.core.verdict import Finding, Verdict

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


# System libraries: only those named here; anything else missing is a failure.
# The dynamic loader's message (glibc, elf/dl-load.c), as Python and ctypes pass it on.
_MESSAGE = re.compile(r"(\S+): cannot open shared object file")
_FOUND = re.compile(rf"(?:ImportError|OSError): {_MESSAGE.pattern}")

# The Debian and Ubuntu packages that Python packages for images, video and sound need.
_PACKAGES = {
    "libEGL.so.1": "libegl1",
    "libGL.so.1": "libgl1",
    "libSM.so.6": "libsm6",
    "libX11.so.6": "libx11-6",
    "libXext.so.6": "libxext6",
    "libXrender.so.1": "libxrender1",
    "libglib-2.0.so.0": "libglib2.0-0",
    "libgomp.so.1": "libgomp1",
    "libgthread-2.0.so.0": "libglib2.0-0",
    "libopenblas.so.0": "libopenblas0",
    "libsndfile.so": "libsndfile1",
    "libsndfile.so.1": "libsndfile1",
    "libxcb.so.1": "libxcb1",
}


def loader_error(error: BaseException | None) -> ImportError | OSError | None:
    """The dynamic loader's own exception about a file that is named here, if it is the cause.

    Only exceptions raised ``from`` it: an exception on the way to another import is not a cause.
    """
    while error is not None:
        found = _MESSAGE.match(str(error)) if isinstance(error, (ImportError, OSError)) else None
        if found and found[1] in _PACKAGES:
            assert isinstance(error, (ImportError, OSError))
            return error
        error = error.__cause__
    return None


def lacking(verdict: Verdict, findings: Iterable[Finding]) -> str:
    """The file without which a case could not be run; empty if this is not what stopped it."""
    if verdict is not Verdict.UNSUPPORTED:
        return ""
    refusals = [found for found in findings if found.verdict is Verdict.UNSUPPORTED]
    files = [found[1] if (found := _FOUND.match(one.got)) else "" for one in refusals]
    return files[0] if files and all(file in _PACKAGES for file in files) else ""


def remedied(lack: ImportError | OSError | str) -> str:
    """What is missing and how to install it, from the file's name or the loader's error."""
    found = _MESSAGE.match(str(lack))
    file = found[1] if found else str(lack)
    return f"{file} is missing; on Debian and Ubuntu `apt-get install {_PACKAGES[file]}` brings it"
