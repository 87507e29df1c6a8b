"""What the files of libraries import, from their text: nothing is imported."""

from __future__ import annotations

import ast
import functools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from conformance.reference.installed_files import package_folder

# Where statements have others; an expression has no list in any of these.
_PARTS = ("body", "orelse", "finalbody", "handlers", "cases")


def closure(names: Iterable[str], following: Callable[[str], Iterable[str]]) -> set[str]:
    """These names and all that follow from them, one through another."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += following(name)
    return found


def reached(roots: Iterable[str]) -> frozenset[str] | None:
    """The modules that importing ``roots`` may import, of the same packages, with the roots.

    Used where no earlier run has recorded the modules of a case. Imports within functions count,
    too. ``None`` if a root has no file, or a file cannot be parsed: anything may be imported then.
    """
    roots = list(roots)
    packages = {root.partition(".")[0] for root in roots}
    if not all(map(file_of, roots)):
        return None

    def following(name: str) -> Iterator[str]:
        parent = name.rpartition(".")[0]
        yield from filter(None, [parent])
        yield from (one for one in imports(name) or () if one.partition(".")[0] in packages)

    found = frozenset(closure(roots, following))
    return None if any(imports(name) is None for name in found) else found


@functools.cache
def imports(module: str) -> frozenset[str] | None:
    """The modules that the file of a module names in import statements, as far as they have files.

    ``None`` if the file cannot be parsed.
    """
    path = file_of(module)
    named = imports_of(path, package_of(module, path)) if path is not None else ()
    return None if named is None else frozenset(name for name in named if file_of(name))


def file_of(name: str) -> Path | None:
    """The file of a library's module, found by its name; ``None`` if there is none.

    A package shadows a module of its name, as in an import.
    """
    head, *rest = name.split(".")
    root = package_folder(head)
    if root is None:
        return None
    base = root.joinpath(*rest)
    for path in (f"{base}{os.sep}__init__.py", f"{base}.py"):
        if os.path.isfile(path):  # noqa: PTH113 - asked for every loaded module
            return Path(path)
    return None


def package_of(name: str, path: Path) -> str:
    """The package to which the relative imports of a module with this file refer."""
    return name if path.name == "__init__.py" else name.rpartition(".")[0]


@functools.cache
def imports_of(path: Path, package: str) -> tuple[str, ...] | None:
    """The names of modules that a file of this package may import; ``None`` if it can't be parsed.

    ``from a import b`` can mean ``a`` and ``a.b``.
    """
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return None
    return tuple(name for node in _statements(tree) for name in _imports(node, package))


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """All statements: imports are in no expression, and most nodes are expressions."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += (one for part in _PARTS for one in getattr(node, part, ()))


def _imports(node: ast.AST, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        up = package.split(".")[: len(package.split(".")) - node.level + 1]
        base = ".".join([*(up if node.level else []), *filter(None, [node.module])])
        yield base
        yield from (f"{base}.{alias.name}" for alias in node.names)
