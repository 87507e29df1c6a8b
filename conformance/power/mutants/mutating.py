"""Makes the mutants of a module: mutmut's operators on LibCST's tree, one change at a time."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import libcst as cst
import libcst.matchers as m
import msgspec
from libcst.metadata import (
    CodeRange,
    MetadataWrapper,
    PositionProvider,
    WhitespaceInclusivePositionProvider,
)
from mutmut.mutation.mutators import mutation_operators

from conformance.report.mutants import Kind, Mutant

# Constants with any of these are created when the module is imported, or are types.
_MADE = m.Call() | m.Subscript() | m.Lambda() | m.ListComp() | m.DictComp() | m.SetComp()
# Their output and errors are not results of decoding.
_SAYING = {"print", "warn", "debug", "info", "warning", "error", "exception", "log"}
# Wrong arguments of these are refused by Python itself (mutmut also leaves them out).
_TESTING = {"isinstance", "issubclass", "hasattr", "len", "cast", "TypeVar"}
_NAMES = {"__repr__", "__str__", "__new__", "__getattribute__", "__setattr__"}


class _Scope(NamedTuple):
    """A class or a function around a node."""

    name: str
    is_function: bool
    decorated: bool
    lines: tuple[int, int]


def mutants_of(module: str, text: str) -> tuple[Mutant, ...]:
    """The mutants of a module, in the order of their lines, without duplicates of the same text.

    Annotations, decorators, docstrings, errors and printed texts are not changed, nor is code that
    runs when the module is imported, except defaults and constants.

    Args:
        module: the path of its file below the installed packages.
        text: the source.

    Raises:
        libcst.ParserSyntaxError: the source is not Python.
    """
    wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    visitor = _Visitor(module, text, wrapper.module)
    wrapper.visit(visitor)
    return _numbered(visitor.found)


def _numbered(mutants: Iterable[Mutant]) -> tuple[Mutant, ...]:
    """The mutants without duplicates of the same text; mutants of one key are numbered."""
    unique: dict[tuple[int, int, str], Mutant] = {}
    for mutant in mutants:
        unique.setdefault((mutant.start, mutant.end, mutant.text), mutant)
    seen: Counter[tuple[str, str, str, str, str, int]] = Counter()
    numbered = []
    for mutant in sorted(unique.values(), key=lambda m: (m.start, m.end, m.operator, m.text)):
        numbered.append(msgspec.structs.replace(mutant, nth=seen[mutant.key]))
        seen[mutant.key] += 1
    return tuple(numbered)


class _Visitor(cst.CSTVisitor):
    """Collects the mutants of all visited nodes."""

    METADATA_DEPENDENCIES = (PositionProvider, WhitespaceInclusivePositionProvider)

    def __init__(self, module: str, text: str, tree: cst.Module) -> None:
        super().__init__()
        self.found: list[Mutant] = []
        self._module, self._text, self._tree = module, text, tree
        self._starts = [0]
        for line in text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._scopes: list[_Scope] = []
        self._statements: list[tuple[int, int]] = []
        self._kinds: list[Kind | None] = [None]

    def on_visit(self, node: cst.CSTNode) -> bool:
        if _left_alone(node):
            return False
        self._enter(node)
        kind = self._kinds[-1]
        if kind is not None:
            self.found += self._mutants(node, kind)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if not _left_alone(original_node):
            self._leave(original_node)

    def _enter(self, node: cst.CSTNode) -> None:
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            function = isinstance(node, cst.FunctionDef)
            whole = _lines(self._position(node))
            self._scopes.append(_Scope(node.name.value, function, bool(node.decorators), whole))
            self._kinds.append(Kind.BODY if self._in_function() else None)
        elif isinstance(node, cst.Param) and self._outermost_function():
            self._kinds.append(Kind.DEFAULT)
        elif isinstance(node, cst.Assign | cst.AnnAssign) and not self._in_function():
            self._kinds.append(Kind.CONSTANT if self._is_constant(node) else None)
        if (lines := self._lines_of_statement(node)) is not None:
            self._statements.append(lines)

    def _leave(self, node: cst.CSTNode) -> None:
        if self._lines_of_statement(node) is not None:
            self._statements.pop()
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            self._kinds.pop()
            self._scopes.pop()
        elif (isinstance(node, cst.Param) and self._outermost_function()) or (
            isinstance(node, cst.Assign | cst.AnnAssign) and not self._in_function()
        ):
            self._kinds.pop()

    def _in_function(self) -> bool:
        return any(scope.is_function for scope in self._scopes)

    def _outermost_function(self) -> bool:
        return bool(self._scopes) and sum(scope.is_function for scope in self._scopes) == 1

    def _is_constant(self, node: cst.Assign | cst.AnnAssign) -> bool:
        """Whether it sets a plain name; decorators, such as dataclass, have read theirs already."""
        target = node.target if isinstance(node, cst.AnnAssign) else node.targets[0].target
        several = isinstance(node, cst.Assign) and len(node.targets) > 1
        decorated = any(scope.decorated for scope in self._scopes)
        made = node.value is None or bool(m.findall(node.value, _MADE))
        return isinstance(target, cst.Name) and not (several or decorated or made)

    def _lines_of_statement(self, node: cst.CSTNode) -> tuple[int, int] | None:
        """The lines of which one runs if the node does; ``None`` if it is not a statement."""
        if isinstance(node, cst.SimpleStatementLine):
            return _lines(self._position(node))
        if isinstance(node, cst.If | cst.While):
            return _lines(self._position(node.test), self._position(node))
        if isinstance(node, cst.For):
            return _lines(self._position(node.iter), self._position(node))
        if isinstance(node, cst.With | cst.Match | cst.FunctionDef):
            body = node.cases[0] if isinstance(node, cst.Match) else node.body
            first, last = self._position(node).start.line, self._position(body).end.line
            return (first, last if isinstance(node, cst.FunctionDef) else first)
        return None

    def _position(self, node: cst.CSTNode) -> CodeRange:
        return self.get_metadata(PositionProvider, node)

    def _mutants(self, node: cst.CSTNode, kind: Kind) -> Iterator[Mutant]:
        for kind_of_node, operator in mutation_operators:
            if isinstance(node, kind_of_node):
                made = (self._mutant(node, new, operator.__name__, kind) for new in operator(node))
                yield from (mutant for mutant in made if mutant is not None)

    def _mutant(
        self, node: cst.CSTNode, mutated: cst.CSTNode, operator: str, kind: Kind
    ) -> Mutant | None:
        where = self.get_metadata(WhitespaceInclusivePositionProvider, node, None)
        if where is None:
            return None
        start = self._starts[where.start.line - 1] + where.start.column
        end = self._starts[where.end.line - 1] + where.end.column
        if self._text[start:end] != self._tree.code_for_node(node):
            return None  # a block, whose indentation is not its own
        code = self._tree.code_for_node(mutated)
        if code == self._text[start:end] or _same_number(self._text[start:end], code):
            return None
        before, after, line = _changed_lines(self._text, start, end, code)
        first, last = self._statements[-1] if self._statements else (line, line)
        if kind is Kind.CONSTANT:
            first, last = self._scopes[-1].lines if self._scopes else (1, len(self._starts))
        return Mutant(
            self._module,
            ".".join(scope.name for scope in self._scopes),
            operator.removeprefix("operator_"),
            before,
            after,
            line,
            (first, last),
            start,
            end,
            code,
            kind,
        )


def _lines(place: CodeRange, whole: CodeRange | None = None) -> tuple[int, int]:
    return ((whole or place).start.line, place.end.line)


def _left_alone(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.Annotation | cst.Decorator | cst.Raise | cst.Import | cst.ImportFrom):
        return True
    if isinstance(node, cst.FunctionDef):
        return node.name.value in _NAMES
    if isinstance(node, cst.Expr):  # a docstring, or a string used as a comment
        return isinstance(node.value, cst.BaseString)
    if isinstance(node, cst.Call):
        name = node.func
        if isinstance(name, cst.Attribute):
            return name.attr.value in _SAYING and _root(name) in ("logger", "logging", "warnings")
        return isinstance(name, cst.Name) and name.value in _SAYING | _TESTING
    return False


def _same_number(before: str, after: str) -> bool:
    """Whether both are strings that ``float`` reads alike, such as "inf" and "INF"."""
    try:
        one, other = ast.literal_eval(before), ast.literal_eval(after)
        return isinstance(one, str) and isinstance(other, str) and float(one) == float(other)
    except (ValueError, SyntaxError):
        return False


def _root(node: cst.BaseExpression) -> str:
    while isinstance(node, cst.Attribute):
        node = node.value
    return node.value if isinstance(node, cst.Name) else ""


def _changed_lines(text: str, start: int, end: int, code: str) -> tuple[str, str, int]:
    """The lines that differ before and after, and the number of the first one."""
    first = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", end)
    stop = len(text) if stop < 0 else stop
    old = text[first:stop].split("\n")
    new = (text[first:start] + code + text[end:stop]).split("\n")
    number = text.count("\n", 0, first) + 1
    while len(old) > 1 and len(new) > 1 and old[-1] == new[-1]:
        old.pop()
        new.pop()
    while len(old) > 1 and len(new) > 1 and old[0] == new[0]:
        old.pop(0)
        new.pop(0)
        number += 1
    return _joined(old), _joined(new), number


def _joined(lines: Sequence[str]) -> str:
    return "\n".join(line.strip() for line in lines).strip()
