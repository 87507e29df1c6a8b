"""Functions of a library by file and line, and whether their source is still the same."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

_PLACE = re.compile(r"(mlx_(?:lm|vlm)/[\w/.-]+\.py):(\d+)")
_DIGITS = 12

Function = ast.FunctionDef | ast.AsyncFunctionDef


def places(where: str) -> tuple[tuple[str, int], ...]:
    """Each ``file:line`` that a text names: the file relative to the installed packages."""
    return tuple((file, int(line)) for file, line in _PLACE.findall(where))


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
    """A digest of each function's source by name, without comment lines.

    The text is used as it is written: its parsed form differs between Python versions.
    """
    lines = text.splitlines()
    try:
        tree = _parsed(text)
    except SyntaxError:
        return {}
    parts: dict[str, str] = {}
    for name, node in _functions(tree):
        source = textwrap.dedent("\n".join(lines[_first_line(node) - 1 : node.end_lineno]))
        kept = [line.rstrip() for line in source.splitlines() if not _empty(line)]
        parts[name] = "\n".join([parts.get(name, ""), *kept])  # one name may be defined twice
    return {name: text_digest(part) for name, part in parts.items()}


def text_digest(text: str) -> str:
    """A short hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


@functools.lru_cache(maxsize=4)
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def _functions(tree: ast.AST, before: str = "") -> Iterator[tuple[str, Function]]:
    """All functions with their names, including inner ones."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = f"{before}{node.name}"
            if not isinstance(node, ast.ClassDef):
                yield name, node
            yield from _functions(node, f"{name}.")
        else:
            yield from _functions(node, before)


def _first_line(node: Function) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _empty(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")
