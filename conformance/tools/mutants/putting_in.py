"""Puts a mutant into the libraries of this process, and takes it out; no file is changed.

The module's source with the change is compiled, and its functions that differ get the new code:
whoever has imported a function, or holds a method, runs it too. Defaults and constants are computed
anew and set. Afterwards all is as before.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from conformance.core.errors import ConformanceError
from conformance.report.mutants import Kind, Mutant


class InvalidMutantError(ConformanceError):
    """A mutant is no program, or nothing of it can be put into the running library."""


class SameCodeError(InvalidMutantError):
    """The mutant compiles to the same code."""


class _Change(NamedTuple):
    """An attribute of an object, without the mutant and with it."""

    owner: Any
    name: str
    right: Any
    wrong: Any


class PutIn:
    """A mutant, ready to be put in and taken out many times.

    Raises:
        SameCodeError: it compiles to the same code.
        InvalidMutantError: it is no program, or what it changes is not there.
    """

    def __init__(self, mutant: Mutant) -> None:
        module = _imported(mutant.module)
        path = Path(str(module.__file__))
        right = path.read_text(encoding="utf-8")
        wrong = right[: mutant.start] + mutant.text + right[mutant.end :]
        try:
            ast.parse(wrong)
        except (SyntaxError, ValueError) as error:
            raise InvalidMutantError(f"it is no program: {error}") from error
        if mutant.kind is Kind.BODY:
            self._changes = tuple(_codes(str(path), right, wrong))
        elif mutant.kind is Kind.DEFAULT:
            self._changes = tuple(_defaults(module, mutant.function, right, wrong))
        else:
            self._changes = tuple(_constants(module, mutant.function, right, wrong))
        if not self._changes:
            raise InvalidMutantError("what it changes is not there in the loaded library")
        self._package = module.__name__.partition(".")[0]

    def active(self) -> AbstractContextManager[None]:
        """Inside the block the mutant is there."""
        return _active(self._changes, self._package)


@contextlib.contextmanager
def _active(changes: Iterable[_Change], package: str) -> Iterator[None]:
    _forget(package)
    for change in changes:
        setattr(change.owner, change.name, change.wrong)
    try:
        yield
    finally:
        for change in changes:
            setattr(change.owner, change.name, change.right)
        _forget(package)


def _forget(package: str) -> None:
    """Empty the caches of the package's functions: what they hold was made by other code."""
    for module in [m for name, m in list(sys.modules.items()) if _below(name, package)]:
        for value in list(vars(module).values()):
            if isinstance(value, functools._lru_cache_wrapper):
                value.cache_clear()


def _below(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _imported(file: str) -> ModuleType:
    parts = Path(file).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    # A package may have a function of the module's name: the module is found by its own.
    try:
        importlib.import_module(name)
    except Exception as error:
        raise InvalidMutantError(f"{name} cannot be imported: {error}") from error
    return sys.modules[name]


def _codes(file: str, right: str, wrong: str) -> Iterator[_Change]:
    """The functions that differ, each with its code before and after."""
    pairs = list(_differing(compile(right, file, "exec"), compile(wrong, file, "exec")))
    if not pairs:
        raise SameCodeError("it compiles to the same code")
    missing = {new.co_firstlineno: _lost(old, new) for old, new in pairs if _lost(old, new)}
    if missing:
        kept = _mentioning(ast.parse(wrong), missing)
        pairs = list(_differing(compile(right, file, "exec"), compile(kept, file, "exec")))
    new_codes = {_place(old): (old, new) for old, new in pairs}
    for function in _functions_of(file):
        old, new = new_codes.get(_place(function.__code__), (None, None))
        if old is None or new is None:
            continue
        if old.co_freevars != new.co_freevars:
            raise InvalidMutantError("it changes which outer variables a function has")
        yield _Change(function, "__code__", function.__code__, new)


def _first_line(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _lost(old: CodeType, new: CodeType) -> set[str]:
    """Outer variables that the mutant does not use any more; a function must keep them."""
    return set(old.co_freevars) - set(new.co_freevars)


def _mentioning(tree: ast.Module, names: dict[int, set[str]]) -> ast.Module:
    """The tree with these outer variables named in the functions of these lines.

    What names them never runs.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            wanted = names.get(_first_line(node), set())
            uses: list[ast.stmt] = [ast.Expr(ast.Name(n, ast.Load())) for n in sorted(wanted)]
            if uses:
                node.body.append(ast.If(ast.Constant(value=False), uses, []))
    return ast.fix_missing_locations(tree)


def _differing(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """The pairs of functions below two modules that differ, those around before those inside."""
    olds, news = _inner(old), _inner(new)
    if [code.co_name for code in olds] != [code.co_name for code in news]:
        return  # a function inside is gone: that around it has changed, and is replaced whole
    for one, other in zip(olds, news, strict=True):
        if not _same(one, other):
            if one.co_flags & _IS_FUNCTION:
                yield one, other
            yield from _differing(one, other)


_IS_FUNCTION = 0x0002  # CO_NEWLOCALS of inspect: bodies of classes and modules have it not


def _inner(code: CodeType) -> list[CodeType]:
    return [const for const in code.co_consts if isinstance(const, CodeType)]


def _same(old: CodeType, new: CodeType) -> bool:
    """Whether two functions do the same; on which lines they are does not matter."""
    same = (
        old.co_code == new.co_code
        and old.co_names == new.co_names
        and old.co_varnames == new.co_varnames
        and old.co_freevars == new.co_freevars
        and len(old.co_consts) == len(new.co_consts)
    )
    return same and all(map(_same_const, old.co_consts, new.co_consts))


def _same_const(old: object, new: object) -> bool:
    if isinstance(old, CodeType) and isinstance(new, CodeType):
        return _same(old, new)
    return type(old) is type(new) and repr(old) == repr(new)  # 0.0 is no -0.0, 1 no True


def _place(code: CodeType) -> tuple[str, int]:
    return (code.co_qualname, code.co_firstlineno)


def _functions_of(file: str) -> list[FunctionType]:
    """All functions that were made from a file and still are there."""
    return [
        found
        for found in gc.get_objects()
        if type(found) is FunctionType and found.__code__.co_filename == file
    ]


def _defaults(module: ModuleType, name: str, right: str, wrong: str) -> Iterator[_Change]:
    """The defaults of a function that differ."""
    old, new = _function(right, name), _function(wrong, name)
    if old is None or new is None:
        raise InvalidMutantError(f"{name} is not there")
    path = str(module.__file__)
    first = _first_line(old)
    for function in _functions_of(path):
        if _place(function.__code__) != (name, first):
            continue
        pairs = zip(old.args.defaults, new.args.defaults, strict=True)
        given = function.__defaults__ or ()
        values = [
            value if ast.dump(one) == ast.dump(other) else _value(other, module)
            for value, (one, other) in zip(given, pairs, strict=True)
        ]
        yield _Change(function, "__defaults__", function.__defaults__, tuple(values) or None)
        named = dict(function.__kwdefaults__ or {})
        for argument, one, other in zip(
            new.args.kwonlyargs, old.args.kw_defaults, new.args.kw_defaults, strict=True
        ):
            if one is not None and other is not None and ast.dump(one) != ast.dump(other):
                named[argument.arg] = _value(other, module)
        yield _Change(function, "__kwdefaults__", function.__kwdefaults__, named or None)


def _constants(module: ModuleType, name: str, right: str, wrong: str) -> Iterator[_Change]:
    """The constants of a class, or of the module, that differ; also where others imported them."""
    owner: Any = module
    for part in filter(None, name.split(".")):
        owner = vars(owner).get(part)
    if owner is None:
        raise InvalidMutantError(f"{name} is not there")
    before, after = _assigned(right, name), _assigned(wrong, name)
    for key, node in after.items():
        if key not in before or ast.dump(before[key]) == ast.dump(node) or key not in vars(owner):
            continue
        old, new = vars(owner)[key], _value(node, module)
        yield _Change(owner, key, old, new)
        if owner is module:
            package = module.__name__.partition(".")[0]
            others = [m for n, m in list(sys.modules.items()) if _below(n, package)]
            for other in others:
                if other is not module and vars(other).get(key) is old:
                    yield _Change(other, key, old, new)


def _value(node: ast.expr, module: ModuleType) -> Any:
    """What an expression gives in the module."""
    code = compile(ast.fix_missing_locations(ast.Expression(node)), str(module.__file__), "eval")
    try:
        return eval(code, vars(module))
    except Exception as error:
        raise InvalidMutantError(f"it cannot be computed: {error!r}") from error


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


def _function(text: str, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    body: list[ast.stmt] = ast.parse(text).body
    found: ast.stmt | None = None
    for part in name.split("."):
        named = [
            node
            for node in body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and node.name == part
        ]
        if not named:
            return None
        found, body = named[-1], named[-1].body
    return found if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef) else None
