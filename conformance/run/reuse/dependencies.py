"""Finds the modules that a family's cases depend on, from what is loaded after running them."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from conformance.reference.surroundings import LIBRARIES, Environment
from conformance.run.reuse.import_graph import closure, file_of, imports_of, package_of
from conformance.run.reuse.opened_files import NO_FILES

_OWN = "conformance"
# Of the modules loaded below these, only those count that the family's own model reaches.
_OF_FAMILIES = tuple(f"{library}.models." for library in LIBRARIES)
_DEPTH = 40


def modules_of(
    model: Any, environment: Environment, packages: Collection[str] = LIBRARIES
) -> frozenset[str] | None:
    """The modules that a loaded model's cases depend on, by name; mapped libraries by path.

    All loaded modules of the libraries, except that of their model modules only those count which
    define objects of ``model``, with the modules these import. In addition, every mapped library
    that is not installed. ``None`` if a library was not loaded from the source files of its name,
    but for example from an archive.

    Args:
        model: the model as its library loaded it, after its cases were run.
        environment: the installed packages.
        packages: those of ``LIBRARIES`` whose loaded modules all count; of the others, only the
            modules that these import.
    """
    named = {name for name in list(sys.modules) if _library(name)}
    if not all(_as_named(name) for name in named):
        return None
    loaded = {name for name in named if file_of(name)}
    shared = {
        name
        for name in loaded
        if name.partition(".")[0] in packages and not name.startswith(_OF_FAMILIES)
    }
    reached = closure([*shared, *(origins(model) & loaded)], lambda name: _imported(name) & loaded)
    return frozenset(reached | {str(path) for path in _mapped(environment)})


def _as_named(name: str) -> bool:
    """Whether a loaded module of a library is from the source file of its name."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None:  # a folder without code, or a module made by another module
        return True
    source = file_of(name)
    return source is not None and (str(source) == file or source.samefile(file))


def origins(root: Any) -> frozenset[str]:
    """The modules that define the classes and functions of an object and of everything in it."""
    seen: set[int] = set()
    found: set[str] = set()
    waiting = [(root, 0)]
    while waiting:
        value, depth = waiting.pop()
        if id(value) in seen or depth > _DEPTH:
            continue
        seen.add(id(value))
        classes = value.__mro__ if isinstance(value, type) else type(value).__mro__
        found.update(cls.__module__ for cls in classes)
        found.add(str(getattr(value, "__module__", "")))
        waiting += [(part, depth + 1) for part in _parts(value)]
    return frozenset(name for name in found if _library(name))


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from list(value.values())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from value
    if _library(type(value).__module__) or type(value).__module__.startswith(_OWN):
        yield from list(getattr(value, "__dict__", {}).values())


def all_of(library: str) -> str:
    """Stands for every module of a package, including modules added later."""
    return f"{library}.*"


def local_modules(environment: Environment) -> Iterator[Path]:
    """The files of loaded modules that are not installed."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if (
            file
            and not _library(name)
            and name.split(".")[0] not in (_OWN, "__main__", "__mp_main__")
        ):
            yield from _outside(file, environment)


def _mapped(environment: Environment) -> Iterator[Path]:
    """The files of loaded compiled libraries that are not installed."""
    with contextlib.suppress(OSError):  # not Linux: there the system's version counts
        for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
            file = line[line.find("/") :] if "/" in line else ""
            # Kernels that mlx compiled in this run depend only on what is hashed anyway.
            if file and not file.startswith((*NO_FILES, f"{tempfile.gettempdir()}{os.sep}")):
                yield from _outside(file, environment)


def _outside(file: str, environment: Environment) -> Iterator[Path]:
    """The file, or the archive that contains it; nothing if it is hashed anyway."""
    if environment.covers(file) or environment.covers(_resolved(file)):
        return
    path = Path(file)
    for place in (path, *path.parents):
        if place.is_file():  # otherwise it was temporary
            yield place
            return


@functools.cache  # the same hundreds of files after each family
def _resolved(file: str) -> str:
    return str(Path(file).resolve())


def _library(name: str) -> bool:
    return name.split(".", maxsplit=1)[0] in LIBRARIES


def _imported(name: str) -> set[str]:
    """The names of modules that a module's text may import, and of their parent packages."""
    path = file_of(name)
    if path is None:
        return set()
    parts = name.split(".")
    above = {".".join(parts[:end]) for end in range(1, len(parts))}
    return above | set(imports_of(path, package_of(name, path)) or ())
