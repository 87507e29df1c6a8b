"""What a library's batched code accepts, and what an adapter passes to it, field by field."""

from __future__ import annotations

import ast
import enum
import hashlib
import importlib.util
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Accepted = Mapping[str, tuple[str, ...]]
"""Names of fields by place: a function, a request model, or ``COMMAND_LINE``."""

COMMAND_LINE = "command line"


class LeftOut(enum.Enum):
    """The value of a field that is not passed."""

    LEFT_OUT = "left out"

    def __repr__(self) -> str:
        """As it is shown among values."""
        return self.value


_DEPTH = 6  # of objects in objects whose parts are compared
_PLAIN = (str, int, float, LeftOut)
_LISTS = (list, tuple, set, frozenset)
_LONGEST = 40  # characters of a value that are shown
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


# What is passed ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Passed:
    """One value that an adapter passed.

    Attributes:
        place: the function, request model or command line.
        name: the parameter, field or option.
        value: a text; only equal values have equal texts.
        arrival: the number of the schedule's arrival whose request it is for; ``None`` if it is
            for the engine as a whole.
    """

    place: str
    name: str
    value: str
    arrival: int | None = None


@dataclass
class Recorder:
    """Collects what is passed.

    Attributes:
        arrival: the number of the current arrival.
        folder: a temporary folder, whose name is no part of a value.
    """

    passed: list[Passed] = field(default_factory=list)
    arrival: int = 0
    folder: str = ""
    # Objects without a value are numbered, and kept so that no other gets the same id.
    _objects: dict[int, tuple[int, object]] = field(default_factory=dict)

    def call(
        self,
        place: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        options: dict[str, Any],
        names: Iterable[str] = (),
    ) -> None:
        """Record a call for the engine as a whole, with all arguments of these names."""
        given = _bound(function, args, options)
        for name in dict.fromkeys((*given, *names)):
            self.add(place, name, given.get(name, LeftOut.LEFT_OUT))

    def rows(
        self,
        place: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        options: dict[str, Any],
        *,
        count: int,
    ) -> None:
        """Record a call for ``count`` requests; a list of that length has a value for each."""
        for name, value in _bound(function, args, options).items():
            each = value if isinstance(value, list | tuple) and len(value) == count else [value]
            for own in each:
                self.add(place, name, own, self.arrival)

    def body(self, place: str, names: Iterable[str], fields: Mapping[str, Any]) -> None:
        """Record a request's body, with the fields of these names that it leaves out."""
        for name in dict.fromkeys((*names, *fields)):
            self.add(place, name, fields.get(name, LeftOut.LEFT_OUT), self.arrival)

    def add(self, place: str, name: str, value: object, arrival: int | None = None) -> None:
        """Record one value."""
        text = self._text(value)
        if len(text) > _LONGEST:
            digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
            text = f"{text[:_LONGEST]}... ({digest})"
        self.passed.append(Passed(place, name, text, arrival))

    def _text(self, value: object, depth: int = 0) -> str:
        if isinstance(value, str) and self.folder:
            return repr(value.replace(self.folder, "FOLDER"))
        if value is None or isinstance(value, _PLAIN):
            return repr(value)
        if depth > _DEPTH:
            return self._number(value)
        if type(value) is dict:
            pairs = (f"{key!r}: {self._text(own, depth + 1)}" for key, own in value.items())
            return f"{{{', '.join(pairs)}}}"
        parts = _parts(value)
        if parts is None:
            return self._number(value)
        text = ", ".join(self._text(part, depth + 1) for part in parts)
        return f"[{text}]" if isinstance(value, _LISTS) else f"{_name(value)}({text})"

    def _number(self, value: object) -> str:
        number, _ = self._objects.setdefault(id(value), (len(self._objects), value))
        return f"{_name(value)} {number}"


def _name(value: object) -> str:
    return getattr(value, "__qualname__", type(value).__name__)


def _parts(value: object) -> list[object] | None:
    """What distinguishes an object from others of its kind; ``None`` if only its identity does."""
    if isinstance(value, _LISTS):
        return list(value)
    if inspect.isfunction(value):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return [*cells, *(value.__defaults__ or ())]
    if isinstance(value, dict) or not hasattr(value, "__dict__"):  # a model is a dict
        return None
    return list(vars(value).values())


def _bound(
    function: Callable[..., Any], args: Sequence[Any], options: dict[str, Any]
) -> dict[str, Any]:
    """Arguments by name, without ``self``; what the call leaves out has its default."""
    bound = inspect.signature(function).bind(*args, **options)
    bound.apply_defaults()
    found = dict(bound.arguments)
    found.pop("self", None)
    for parameter in bound.signature.parameters.values():
        if parameter.kind in _VARIABLE:
            rest = found.pop(parameter.name)
            found |= rest if parameter.kind is inspect.Parameter.VAR_KEYWORD else {}
    return found


# What is accepted --------------------------------------------------------------------------------


def parameters_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a function's parameters, without ``self`` and those of variable number."""
    found = inspect.signature(function).parameters.values()
    return tuple(p.name for p in found if p.name != "self" and p.kind not in _VARIABLE)


def source_tree(module: str) -> ast.Module:
    """The syntax tree of an installed module, which is not imported; its packages are.

    Empty if there is no such module.
    """
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # what would be its package is missing, or is a module
        spec = None
    if spec is None or spec.origin is None:
        return ast.Module([], [])
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))


def options_in(tree: ast.Module) -> tuple[str, ...]:
    """The long options that a module's calls of ``add_argument`` add, in their order."""
    return tuple(dict.fromkeys(text for text in _texts(tree, "add_argument") if text[:2] == "--"))


def body_fields_in(
    tree: ast.Module, body: Sequence[str] = ("self.body", "body")
) -> tuple[str, ...]:
    """The fields that a module reads from a request's body by hand: ``get``, or an index.

    Args:
        body: the expressions that the module writes for the body.
    """
    reads = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "get"
        and ast.unparse(node.func.value) in body
        and node.args
    ]
    names: list[ast.expr] = [node.args[0] for node in reads]
    names += [
        node.slice
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) in body
    ]
    return tuple(dict.fromkeys(_constants(names)))


def _texts(tree: ast.Module, method: str) -> Iterable[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr == method:
            yield from _constants(node.args)


def _constants(nodes: Iterable[ast.expr]) -> Iterable[str]:
    return (
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
