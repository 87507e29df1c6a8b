"""Puts a mutant into the libraries of this process, and takes it out; no file is changed.

The changed source of the module is compiled, and its functions that differ get the new code, so
imported functions and bound methods run it too. Defaults and constants are computed again and set.
Taking the mutant out restores everything.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import CodeType, ModuleType

from conformance.power.mutants.definitions import (
    Change,
    InvalidMutantError,
    SameCodeError,
    constant_changes,
    default_changes,
    first_line,
    functions_of,
    is_none_anyway,
    modules_of,
    place_of,
    with_reads_by_identity,
    without_default,
)
from conformance.report.mutants import Kind, Mutant


class PutIn:
    """A mutant, ready to be put in and taken out many times.

    Raises:
        SameCodeError: the mutant compiles to the same code.
        InvalidMutantError: the mutant is not valid code, or its target is missing.
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
        self._unread: tuple[Change, ...] = ()
        if is_none_anyway(right, wrong):
            raise SameCodeError("get gives None without a default, too")
        if mutant.kind is Kind.BODY:
            self._changes = tuple(_codes(str(path), right, wrong))
            if (lookup := without_default(right, wrong)) is not None:
                self._unread = tuple(_codes(str(path), right, lookup))
        else:
            changes = default_changes if mutant.kind is Kind.DEFAULT else constant_changes
            self._changes = tuple(changes(module, mutant.function, right, wrong))
            reading = _codes(str(path), right, with_reads_by_identity(right))
            unread = changes(module, mutant.function, right, wrong, unread=True)
            self._unread = (*unread, *reading)
        if not self._changes:
            raise InvalidMutantError("what it changes is not there in the loaded library")
        self._package = module.__name__.partition(".")[0]

    def active(self) -> AbstractContextManager[None]:
        """Inside the block the mutant is in."""
        return _active(self._changes, self._package)

    @property
    def is_value(self) -> bool:
        """Whether it changes a default, a constant or a lookup's default, which may be unread."""
        return bool(self._unread)

    def unread(self) -> AbstractContextManager[None]:
        """Inside the block the default or constant fails when it is read."""
        return _active(self._unread, self._package)


@contextlib.contextmanager
def _active(changes: Iterable[Change], package: str) -> Iterator[None]:
    _forget(package)
    try:
        for change in changes:
            setattr(change.owner, change.name, change.wrong)
        yield
    finally:
        for change in changes:
            setattr(change.owner, change.name, change.right)
        _forget(package)


def _forget(package: str) -> None:
    """Empty the caches of the package's functions, as their entries were made by other code."""
    for module in modules_of(package):
        for value in list(vars(module).values()):
            if isinstance(value, functools._lru_cache_wrapper):
                value.cache_clear()


def _imported(file: str) -> ModuleType:
    parts = Path(file).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    # A package may have a function with the module's name, so the module is found by its full name.
    try:
        importlib.import_module(name)
    except Exception as error:
        raise InvalidMutantError(f"{name} cannot be imported: {error}") from error
    return sys.modules[name]


def _codes(file: str, right: str, wrong: str | ast.Module) -> Iterator[Change]:
    """The functions that differ, each with its code before and after."""
    pairs = list(_differing(compile(right, file, "exec"), compile(wrong, file, "exec")))
    if not pairs:
        raise SameCodeError("it compiles to the same code")
    missing = {new.co_firstlineno: _lost(old, new) for old, new in pairs if _lost(old, new)}
    if missing:
        tree = wrong if isinstance(wrong, ast.Module) else ast.parse(wrong)
        kept = _mentioning(tree, missing)
        pairs = list(_differing(compile(right, file, "exec"), compile(kept, file, "exec")))
    new_codes = {place_of(old): (old, new) for old, new in pairs}
    for function in functions_of(file):
        old, new = new_codes.get(place_of(function.__code__), (None, None))
        if old is None or new is None:
            continue
        if old.co_freevars != new.co_freevars:
            raise InvalidMutantError("it changes which outer variables a function has")
        yield Change(function, "__code__", function.__code__, new)


def _lost(old: CodeType, new: CodeType) -> set[str]:
    """Outer variables that the mutant no longer uses; a function must keep them."""
    return set(old.co_freevars) - set(new.co_freevars)


def _mentioning(tree: ast.Module, names: dict[int, set[str]]) -> ast.Module:
    """The tree with these outer variables named in the functions of these lines.

    The added code that names them never runs.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            wanted = names.get(first_line(node), set())
            uses: list[ast.stmt] = [ast.Expr(ast.Name(n, ast.Load())) for n in sorted(wanted)]
            if uses:
                node.body.append(ast.If(ast.Constant(value=False), uses, []))
    return ast.fix_missing_locations(tree)


def _differing(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """The pairs of differing functions below two modules, outer ones before inner ones."""
    olds, news = _inner(old), _inner(new)
    if [code.co_name for code in olds] != [code.co_name for code in news]:
        return  # an inner function is missing, so the outer one has changed and is replaced whole
    for one, other in zip(olds, news, strict=True):
        if not _same(one, other):
            if one.co_flags & _IS_FUNCTION:
                yield one, other
            yield from _differing(one, other)


_IS_FUNCTION = 0x0002  # CO_NEWLOCALS of inspect, which bodies of classes and modules lack


def _inner(code: CodeType) -> list[CodeType]:
    return [const for const in code.co_consts if isinstance(const, CodeType)]


def _same(old: CodeType, new: CodeType) -> bool:
    """Whether two functions have the same code, apart from line numbers."""
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
    return type(old) is type(new) and repr(old) == repr(new)  # 0.0 is not -0.0, 1 not True
