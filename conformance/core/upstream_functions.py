"""Places in a library's functions, and whether the functions' source is still the same.

A place is bound to its function, not to a line of the file: other code moves in every release.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_PLACE = re.compile(r"(mlx_(?:lm|vlm)(?:\.[\w-]+)+):([A-Za-z_][\w.]*)(?:\+(\d+))?")
_DIGITS = 12

Function = ast.FunctionDef | ast.AsyncFunctionDef
_Scope = Function | ast.ClassDef


@dataclass(frozen=True)
class Place:
    """A line of a function of a library, or of a class outside of its functions.

    Attributes:
        module: such as ``mlx_lm.models.cache``.
        function: such as ``ArraysCache.extract``.
        line: which of the function's lines, without comments and empty ones; 0 is the first.
    """

    module: str
    function: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.module}:{self.function}" + (f"+{self.line}" if self.line else "")

    @property
    def file(self) -> str:
        """The module's file, relative to the installed packages."""
        return f"{self.module.replace('.', '/')}.py"


def places(where: str) -> tuple[Place, ...]:
    """Each ``module:Class.method+line`` that a text names."""
    return tuple(Place(m, f, int(line or 0)) for m, f, line in _PLACE.findall(where))


def line_of(place: Place, text: str) -> int | None:
    """The line of the file where a place is now; ``None`` if its function is gone.

    If the function has fewer lines now, that of its first.
    """
    lines = code_lines(text).get(place.function, ())
    if not lines:
        return None
    return lines[place.line if place.line < len(lines) else 0][0]


def source_text(file: str) -> str | None:
    """The text of a library's installed file; ``None`` if there is none."""
    package, _, rest = file.partition("/")
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / rest
        if path.is_file():
            return path.read_text(encoding="utf-8", errors="replace")
    return None


def function_at(text: str, line: int) -> str:
    """The name, as ``Class.method``, of the innermost function around the line; else empty."""
    around = [
        (node.lineno, name)
        for name, node in _functions(_parsed(text))
        if _first_line(node) <= line <= (node.end_lineno or 0)
    ]
    return max(around, default=(0, ""))[1]


def digests(text: str) -> dict[str, str]:
    """A digest of the source of each function, and of each class without its functions, by name.

    The text is used as it is written: its parsed form differs between Python versions.
    """
    found = code_lines(text).items()
    return {name: text_digest("\n".join(["", *(t for _, t in part)])) for name, part in found}


@functools.lru_cache(maxsize=256)  # entries come back to a file after many others
def code_lines(text: str) -> Mapping[str, tuple[tuple[int, str], ...]]:
    """The lines of each function, and of each class without its functions, by name.

    Each has its number in the file and its text, without the indentation of the function. Comment
    lines and empty ones are left out.
    """
    lines = text.splitlines()
    try:
        tree = _parsed(text)
    except SyntaxError:
        return {}
    parts: dict[str, tuple[tuple[int, str], ...]] = {}
    for name, node in _scopes(tree):
        first = _first_line(node)
        source = textwrap.dedent("\n".join(lines[first - 1 : node.end_lineno]))
        inner = _inner(node) if isinstance(node, ast.ClassDef) else set()
        own = [
            (number, line.rstrip())
            for number, line in enumerate(source.splitlines(), start=first)
            if not _empty(line) and number not in inner
        ]
        parts[name] = (*parts.get(name, ()), *own)  # one name may be defined twice
    return parts


def text_digest(text: str) -> str:
    """A short hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


@functools.lru_cache(maxsize=4)
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def _functions(tree: ast.AST) -> Iterator[tuple[str, Function]]:
    """All functions with their names, including inner ones."""
    for name, node in _scopes(tree):
        if not isinstance(node, ast.ClassDef):
            yield name, node


def _scopes(tree: ast.AST, before: str = "") -> Iterator[tuple[str, _Scope]]:
    """All functions and classes with their names, including inner ones."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = f"{before}{node.name}"
            yield name, node
            yield from _scopes(node, f"{name}.")
        else:
            yield from _scopes(node, before)


def _inner(node: ast.ClassDef) -> set[int]:
    """The lines of a class that are of its functions and classes."""
    inside = (one for _, one in _scopes(node))
    return {n for one in inside for n in range(_first_line(one), (one.end_lineno or 0) + 1)}


def _first_line(node: _Scope) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _empty(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")
