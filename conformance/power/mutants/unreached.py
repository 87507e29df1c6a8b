"""The lines of a library's files that no schedule runs, function by function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from conformance.core.upstream_functions import function_at
from conformance.power.mutants.reach import Map, ranges
from conformance.power.mutants.reviewed import Reviewed


class Gap(NamedTuple):
    """Lines of a function that no schedule runs.

    Attributes:
        lines: the first and last line of each run of adjacent lines.
        missing: the number of its lines that do not run.
        of: the number of its lines with code.
        reason: the reason of a reviewed entry; empty if there is none.
    """

    module: str
    function: str
    lines: tuple[tuple[int, int], ...]
    missing: int
    of: int
    reason: str

    @property
    def text(self) -> str:
        """The lines in the form ``120-131, 140``."""
        return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in self.lines)


def gaps(module: str, text: str, where: Map, reviewed: Reviewed) -> Iterator[Gap]:
    """The gaps of a module, in the order of its functions.

    Args:
        text: the source of the module.
        where: the lines that run.
    """
    run = where.lines(module)
    of_function: dict[str, int] = {}
    for line in _statements(ast.parse(text)):
        function = function_at(text, line)
        of_function[function] = of_function.get(function, 0) | 1 << line
    for name, lines in of_function.items():
        missing = lines & ~run
        if name and missing:
            counts = missing.bit_count(), lines.bit_count()
            reason = reviewed.why_unreached(module, name)
            yield Gap(module, name, tuple(_joined(missing, lines)), *counts, reason)


def _joined(missing: int, lines: int) -> Iterator[tuple[int, int]]:
    """Runs of lines that do not run, joined across lines without code."""
    last: tuple[int, int] | None = None
    for first, end in ranges(missing):
        between = lines & ((1 << first) - (1 << (last[1] + 1))) if last else 1
        if last is not None and not between:
            last = (last[0], end)
            continue
        if last is not None:
            yield last
        last = (first, end)
    if last is not None:
        yield last


def _statements(tree: ast.AST) -> Iterator[int]:
    """The first line of each statement in a function, except definitions and docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for inner in ast.walk(node):
                if isinstance(inner, ast.stmt) and not isinstance(inner, _NO_CODE):
                    text = isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant)
                    if not text:
                        yield inner.lineno


_NO_CODE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Global, ast.Nonlocal, ast.Pass)
