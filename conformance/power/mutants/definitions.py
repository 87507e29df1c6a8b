"""Mutants of values: what is put into live objects for defaults, constants and lookups."""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
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


_Function = ast.FunctionDef | ast.AsyncFunctionDef
# Returns a default's mutated value from its expression and its value without a mutant.
_Value = Callable[[ast.expr, Any], Any]


class Unread:
    """Replaces a value that nothing should read: any use of it fails."""

    def __bool__(self) -> bool:
        raise TypeError(_READ)

    def __eq__(self, other: object) -> bool:
        raise TypeError(_READ)

    def __str__(self) -> str:
        raise TypeError(_READ)

    def __getattribute__(self, name: str) -> object:
        raise TypeError(_READ)

    def __hash__(self) -> int:
        raise TypeError(_READ)


_READ = "this value is read"


def with_reads_by_identity(text: str) -> ast.Module:
    """The module in which ``x is None`` also reads ``x``: ``(x.__class__, x is None)[1]``."""
    tree = ast.parse(text)
    _ReadByIdentity().visit(tree)
    return ast.fix_missing_locations(tree)


class _ReadByIdentity(ast.NodeTransformer):
    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        plain = isinstance(node.left, ast.Name | ast.Attribute)
        if not plain or not any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
            return node
        read = ast.Attribute(node.left, "__class__", ast.Load())
        both = ast.Tuple([read, node], ast.Load())
        return ast.copy_location(ast.Subscript(both, ast.Constant(1), ast.Load()), node)


def default_changes(
    module: ModuleType, name: str, right: str, wrong: str, *, unread: bool = False
) -> Iterator[Change]:
    """The defaults of a function that differ between two sources of its module.

    Args:
        unread: replace each by a value that fails when it is read, not by the mutated value.

    Raises:
        InvalidMutantError: the function is missing, or a default cannot be computed.
    """
    old, new = _function(right, name), _function(wrong, name)
    if old is None or new is None:
        raise InvalidMutantError(f"{name} is not there")
    pairs = zip(_written(old.args), _written(new.args), strict=True)
    changed = {id(one): other for one, other in pairs if ast.dump(one) != ast.dump(other)}

    def value(node: ast.expr, before: Any) -> Any:
        if id(node) not in changed:
            return before
        return Unread() if unread else value_of(changed[id(node)], module)

    for function in functions_of(str(module.__file__)):
        if place_of(function.__code__) == (name, first_line(old)):
            yield from _of_function(function, old, value)


def constant_changes(
    module: ModuleType, name: str, right: str, wrong: str, *, unread: bool = False
) -> Iterator[Change]:
    """The constants of a class, or of the module, that differ between two sources of the module.

    Constants of a module include other modules' imports of them, and defaults of functions.

    Args:
        name: the class's name; empty for the module.
        unread: replace each by a value that fails when it is read, not by the mutated value.

    Raises:
        InvalidMutantError: the class is missing, or a constant cannot be computed.
    """
    owner: Any = module
    for part in filter(None, name.split(".")):
        owner = vars(owner).get(part)
    if owner is None:
        raise InvalidMutantError(f"{name} is not there")
    before, after = _assigned(right, name), _assigned(wrong, name)
    for key, node in after.items():
        if key not in before or ast.dump(before[key]) == ast.dump(node) or key not in vars(owner):
            continue
        old = vars(owner)[key]
        new = Unread() if unread else value_of(node, module)
        if owner is not module:
            yield Change(owner, key, old, new)
            continue
        for other in modules_of(module.__name__.partition(".")[0]):
            if other is module or vars(other).get(key) is old:
                yield Change(other, key, old, new)
                yield from _where_default(other, key, new)


def value_of(node: ast.expr, module: ModuleType) -> Any:
    """The value of an expression in a module.

    Raises:
        InvalidMutantError: evaluating it raises an error.
    """
    code = compile(ast.fix_missing_locations(ast.Expression(node)), str(module.__file__), "eval")
    try:
        return eval(code, vars(module))
    except Exception as error:
        raise InvalidMutantError(f"it cannot be computed: {error!r}") from error


def _where_default(module: ModuleType, key: str, new: Any) -> Iterator[Change]:
    """The functions of a module that have the constant as a default."""
    path = Path(str(module.__file__))
    if not path.is_file():
        return

    def value(node: ast.expr, before: Any) -> Any:
        return new if isinstance(node, ast.Name) and node.id == key else before

    nodes = {
        (node.name, first_line(node)): node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, _Function)
    }
    for function in functions_of(str(path)):
        code = function.__code__
        node = nodes.get((code.co_name, code.co_firstlineno))
        if node is not None:
            yield from _of_function(function, node, value)


def _of_function(function: FunctionType, node: _Function, value: _Value) -> Iterator[Change]:
    """The changes of a function's defaults; none if all are unchanged."""
    given, named = function.__defaults__ or (), function.__kwdefaults__ or {}
    if len(given) == len(node.args.defaults):
        values = tuple(map(value, node.args.defaults, given))
        if any(one is not other for one, other in zip(values, given, strict=True)):
            yield Change(function, "__defaults__", given, values)
    pairs = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    written = {arg.arg: default for arg, default in pairs if default is not None}
    wrong = {key: value(written[key], old) if key in written else old for key, old in named.items()}
    if any(wrong[key] is not named[key] for key in named):
        yield Change(function, "__kwdefaults__", named, wrong)


def _written(arguments: ast.arguments) -> list[ast.expr]:
    """The expressions of the defaults."""
    return [*arguments.defaults, *(node for node in arguments.kw_defaults if node is not None)]


def _assigned(text: str, name: str) -> dict[str, ast.expr]:
    body: list[ast.stmt] = ast.parse(text).body
    for part in filter(None, name.split(".")):
        classes = [node for node in body if isinstance(node, ast.ClassDef) and node.name == part]
        body = classes[-1].body if classes else []
    found: dict[str, ast.expr] = {}
    for node in body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and node.value and isinstance(node.target, ast.Name):
            found[node.target.id] = node.value
    return found


def _function(text: str, name: str) -> _Function | None:
    body: list[ast.stmt] = ast.parse(text).body
    found: ast.stmt | None = None
    for part in name.split("."):
        named = [n for n in body if isinstance(n, _Function | ast.ClassDef) and n.name == part]
        if not named:
            return None
        found, body = named[-1], named[-1].body
    return found if isinstance(found, _Function) else None


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
