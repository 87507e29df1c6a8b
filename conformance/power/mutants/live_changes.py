"""Attributes of live objects that a mutant changes, found by their file."""

from __future__ import annotations

import ast
import gc
import sys
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from conformance.core.errors import ConformanceError


class InvalidMutantError(ConformanceError):
    """A mutant is not valid code, or no part of it can be put into the running library."""


class SameCodeError(InvalidMutantError):
    """The mutant compiles to the same code."""


class Change(NamedTuple):
    """An attribute of an object, without the mutant and with it."""

    owner: Any
    name: str
    right: Any
    wrong: Any


def functions_of(file: str) -> list[FunctionType]:
    """All functions in memory that were made from a file."""
    return [
        found
        for found in gc.get_objects()
        if type(found) is FunctionType and found.__code__.co_filename == file
    ]


def place_of(code: CodeType) -> tuple[str, int]:
    """The key of a function in its file: its qualified name and its first line."""
    return (code.co_qualname, code.co_firstlineno)


def first_line(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The first line of a function with its decorators, as in its code object."""
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def modules_of(package: str) -> list[ModuleType]:
    """The loaded modules of a package."""
    names = [n for n in list(sys.modules) if n == package or n.startswith(f"{package}.")]
    return [sys.modules[name] for name in names if name in sys.modules]
