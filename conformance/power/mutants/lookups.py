"""Mutants of a lookup's default: whether any run needs it.

``getattr(x, "name", 0)`` becomes ``getattr(x, "name")`` and ``table.get(key, 0)`` becomes
``table.__getitem__(key)``, which fail where the default would be returned.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

# The number of arguments before the default: of functions, and of methods.
_FUNCTIONS = {"getattr": 2, "next": 1}
_METHODS = {"get": 1, "pop": 1}


def without_default(right: str, wrong: str) -> ast.Module | None:
    """The module without the default that a mutant changes; ``None`` if it changes anything else.

    Args:
        right: source of the module.
        wrong: source of the module with the mutant.
    """
    tree = ast.parse(right)
    pairs = list(_pairs(tree, ast.parse(wrong), _line(right, wrong)))
    if not pairs:
        return None
    innermost, _ = pairs[-1]
    innermost.args.pop()
    if isinstance(innermost.func, ast.Attribute) and innermost.func.attr == "get":
        innermost.func.attr = "__getitem__"
    return tree


def is_none_anyway(right: str, wrong: str) -> bool:
    """Whether the mutant removes a ``None`` that ``get`` also returns without a default."""
    pairs = list(_pairs(ast.parse(right), ast.parse(wrong), _line(right, wrong)))
    if not pairs:
        return False
    one, other = pairs[-1]
    by_get = isinstance(one.func, ast.Attribute) and one.func.attr == "get"
    default = one.args[-1]
    none = isinstance(default, ast.Constant) and default.value is None
    return by_get and none and len(other.args) < len(one.args)


def _line(right: str, wrong: str) -> int:
    """The first line that differs, from 1."""
    pairs = zip(right.splitlines(), wrong.splitlines(), strict=False)
    return next((number for number, (a, b) in enumerate(pairs, start=1) if a != b), 1)


def _pairs(one: ast.AST, other: ast.AST, line: int) -> Iterator[tuple[ast.Call, ast.Call]]:
    """The lookups on that line whose defaults differ, outer ones before inner ones."""
    if type(one) is not type(other):
        return
    if not getattr(one, "lineno", line) <= line <= getattr(one, "end_lineno", line):
        return
    if isinstance(one, ast.Call) and isinstance(other, ast.Call) and _is_changed(one, other):
        yield one, other
    for pair in zip(ast.iter_child_nodes(one), ast.iter_child_nodes(other), strict=False):
        yield from _pairs(*pair, line)


def _is_changed(one: ast.Call, other: ast.Call) -> bool:
    """Whether a default differs, and nothing else."""
    before = _before_default(one.func)
    if before is None or len(one.args) != before + 1 or len(other.args) < before or one.keywords:
        return False
    same = _dumped(one, before) == _dumped(other, before)
    return same and _dumped(one, before + 1) != _dumped(other, before + 1)


def _before_default(function: ast.expr) -> int | None:
    if isinstance(function, ast.Name):
        return _FUNCTIONS.get(function.id)
    return _METHODS.get(function.attr) if isinstance(function, ast.Attribute) else None


def _dumped(call: ast.Call, before: int) -> list[str]:
    return [ast.dump(node) for node in (call.func, *call.args[:before], *call.keywords)]
