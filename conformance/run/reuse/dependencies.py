"""Which modules a family's cases really hang on, found from what is loaded after playing them."""

from __future__ import annotations

import ast
import functools
import importlib.util
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

LIBRARIES = ("mlx_lm", "mlx_vlm")
"""Packages whose files may be edited where they are installed."""

_OWN = "conformance"
# Of all modules loaded below these only those count that the family's own model reaches.
_OF_FAMILIES = tuple(f"{library}.models." for library in LIBRARIES)
_DEPTH = 40


def modules_of(model: Any, packages: Collection[str] = LIBRARIES) -> frozenset[str]:
    """The modules that the cases of a loaded model hang on, by name; the user's own by path.

    Of the libraries: all that are loaded, but of their models only those that the objects of
    ``model`` are from, and what these import. Beside them every module that is neither installed
    nor this package: an engine in a folder of the user's, for example.

    Args:
        model: as its library loaded it, after its cases were played.
        packages: those of ``LIBRARIES`` whose loaded modules all count; of others only what these
            import.
    """
    loaded = {name for name in list(sys.modules) if _library(name) and file_of(name)}
    shared = {
        name
        for name in loaded
        if name.partition(".")[0] in packages and not name.startswith(_OF_FAMILIES)
    }
    reached = set(shared)
    waiting = [*shared, *(origins(model) & loaded)]
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting += (_imported(name) & loaded) - reached
    return frozenset(reached | {str(path) for path in _local()})


def origins(root: Any) -> frozenset[str]:
    """The modules that define the classes and functions of an object and of all that it holds."""
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


def file_of(name: str) -> Path | None:
    """The file of a library's module, found by its name; ``None`` if there is none.

    A package shadows a module of its name, as in an import.
    """
    head, *rest = name.split(".")
    root = package_folder(head)
    if root is None:
        return None
    base = root.joinpath(*rest)
    for path in (base / "__init__.py", base.with_name(f"{base.name}.py")):
        if path.is_file():
            return path
    return None


def all_of(library: str) -> str:
    """In place of modules: every module of a package, those that will be added included."""
    return f"{library}.*"


@functools.cache
def package_folder(package: str) -> Path | None:
    """The folder of an installed package; ``None`` if there is none. Nothing is imported."""
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _local() -> Iterator[Path]:
    """The files of modules that are neither installed, nor of a library, nor of this package."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not file or _library(name) or name.split(".")[0] in (_OWN, "__main__"):
            continue
        path = Path(file)
        if path.suffix != ".py" or any(path.is_relative_to(p) for p in _installed()):
            continue
        if path.is_file():  # not one that was made for a moment
            yield path


@functools.cache
def _installed() -> tuple[Path, ...]:
    """The folders of the standard library and of installed packages, which have their versions."""
    paths = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    paths |= {Path(p) for p in sys.path if p and any(Path(p).glob("*.dist-info"))}
    return tuple(paths | {path.resolve() for path in paths})


def _library(name: str) -> bool:
    return name.split(".", maxsplit=1)[0] in LIBRARIES


def _imported(name: str) -> set[str]:
    """The names of modules that a module's text may import, and of the packages above it."""
    path = file_of(name)
    if path is None:
        return set()
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    parts = name.split(".")
    above = {".".join(parts[:end]) for end in range(1, len(parts))}
    return above | set(_names(path, package))


@functools.cache
def _names(path: Path, package: str) -> tuple[str, ...]:
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError:
        return ()
    return tuple(_imports(ast.walk(tree), package))


def _imports(nodes: Iterable[ast.AST], package: str) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            up = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*(up if node.level else []), *filter(None, [node.module])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
