"""What a case may depend on, from the import statements of the libraries: nothing is imported.

Used where no earlier run has recorded the modules of a case.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator
from pathlib import Path

from conformance.reference.installed_files import package_folder


def reached(roots: Iterable[str]) -> frozenset[str] | None:
    """The modules that importing ``roots`` may import, of the same packages, with the roots.

    Imports within functions count, too. ``None`` if a root has no file, or a file cannot be parsed:
    anything may be imported then.
    """
    found: set[str] = set()
    waiting = list(roots)
    packages = {root.partition(".")[0] for root in waiting}
    if not all(map(file_of, waiting)):
        return None
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        imported = imports(name)
        if imported is None:
            return None
        waiting += [one for one in imported if one.partition(".")[0] in packages]
        parent = name.rpartition(".")[0]
        waiting += [parent] if parent else []
    return frozenset(found)


@functools.cache
def imports(module: str) -> frozenset[str] | None:
    """The modules that the file of a module names in import statements, as far as they have files.

    ``None`` if the file cannot be parsed.
    """
    path = file_of(module)
    if path is None:
        return frozenset()
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return None
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    named = {name for node in ast.walk(tree) for name in _named(node, package)}
    return frozenset(name for name in named if file_of(name))


def _named(node: ast.AST, package: str) -> Iterator[str]:
    """The modules that a statement may import: ``from a import b`` can mean ``a`` and ``a.b``."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        yield base
        yield from (f"{base}.{alias.name}" for alias in node.names)


@functools.cache
def file_of(module: str) -> Path | None:
    """The file of a module of an installed package or a checkout."""
    package, *parts = module.split(".")
    folder = package_folder(package)
    if folder is None:
        return None
    place = Path(folder, *parts)
    files = (place / "__init__.py", place.with_suffix(".py")) if parts else (place / "__init__.py",)
    return next((file for file in files if file.is_file()), None)
