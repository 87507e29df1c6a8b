"""The record of which lines of a library's files each schedule runs, and which none runs."""

from __future__ import annotations

import ast
import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

import conformance
from conformance.core.content_keys import digest, file_digest
from conformance.core.family import Family
from conformance.core.upstream_functions import function_at
from conformance.core.user_cache import user_cache
from conformance.core.verdict import CaseId
from conformance.power.mutants.reviewed import Reviewed
from conformance.reference.surroundings import Environment, family_digest
from conformance.report.mutants import Mutant

_DECIDING = [
    "backend",
    "core",
    "plugins",
    "reference",
    "run",
    "scenarios",
    "power/mutants/line_recording.py",
]
# Part of the names of properties' files and folders.
_PROPERTIES = "properties"
_SUFFIX = ".reach.json"


class Place(msgspec.Struct, frozen=True):
    """A schedule of a case, as run without a mutant.

    Attributes:
        case: its id, as text.
        seconds: the duration of the engine's runs while lines were recorded.
        good: whether its result was right.
    """

    case: str
    schedule: str
    seconds: float
    good: bool

    @property
    def id(self) -> CaseId:
        """The case."""
        return CaseId.parse(self.case)


class Reach(msgspec.Struct, frozen=True):
    """The lines that an engine's schedules run in one family.

    Sets of lines are numbers in hexadecimal: the bit of value ``2 ** n`` stands for line ``n``.

    Attributes:
        key: a hash of everything that the record depends on.
        single: by module, the lines that run outside of the engine's runs: in single streams.
        places: the schedules.
        lines: for each place, an index into ``sets`` by module.
        sets: the distinct sets.
    """

    key: str
    library: str
    family: str
    single: dict[str, str]
    places: tuple[Place, ...]
    lines: tuple[dict[str, int], ...]
    sets: tuple[str, ...]

    def of(self, module: str) -> tuple[int, ...]:
        """For each place, the set of the module's lines that it runs, as a number."""
        numbers = [int(text, 16) for text in self.sets]
        return tuple(numbers[found[module]] if module in found else 0 for found in self.lines)


def merged(parts: Sequence[Reach]) -> Reach:
    """The record of a family, merged from ``parts`` with some cases each."""
    first = parts[0]
    sets: dict[str, int] = {}
    single: dict[str, int] = {}
    lines: list[dict[str, int]] = []
    for part in parts:
        for module, bits in part.single.items():
            single[module] = single.get(module, 0) | int(bits, 16)
        lines += [
            {module: sets.setdefault(part.sets[at], len(sets)) for module, at in found.items()}
            for found in part.lines
        ]
    return Reach(
        first.key,
        first.library,
        first.family,
        {module: f"{bits:x}" for module, bits in single.items()},
        tuple(place for part in parts for place in part.places),
        tuple(lines),
        tuple(sets),
    )


class Reached(msgspec.Struct, frozen=True):
    """Where a mutant's code runs.

    Attributes:
        places: the schedules that run it.
        families: the families whose single streams also run it.
    """

    places: tuple[Place, ...]
    families: frozenset[str]


class Map:
    """The lines that the schedules of several families run."""

    def __init__(self, reaches: Sequence[Reach]) -> None:
        self._reaches = reaches
        self._sets: dict[str, list[tuple[Place, int]]] = {}
        self._known: dict[tuple[str, tuple[int, int]], Reached] = {}

    def reached(self, mutant: Mutant) -> Reached:
        """Where the mutant's code runs."""
        key = (mutant.module, mutant.reached_by)
        if key not in self._known:
            self._known[key] = self._reached(mutant.module, span(*mutant.reached_by))
        return self._known[key]

    def _reached(self, module: str, bits: int) -> Reached:
        single = frozenset(
            reach.family for reach in self._reaches if int(reach.single.get(module, "0"), 16) & bits
        )
        pairs = self._pairs(module)
        return Reached(tuple(place for place, lines in pairs if lines & bits), single)

    def lines(self, module: str) -> int:
        """All lines of the module that any schedule runs, as a number."""
        return functools.reduce(int.__or__, (lines for _, lines in self._pairs(module)), 0)

    def _pairs(self, module: str) -> list[tuple[Place, int]]:
        if module not in self._sets:
            self._sets[module] = [
                pair
                for reach in self._reaches
                for pair in zip(reach.places, reach.of(module), strict=True)
            ]
        return self._sets[module]


def span(first: int, last: int) -> int:
    """The lines from ``first`` to ``last`` as a number."""
    return (1 << (last + 1)) - (1 << first)


def reach_key(family: Family, files: Mapping[str, Path], seed: int) -> str:
    """A hash of all that a family's reach depends on: the library, these files, the runner.

    Args:
        files: the modules whose lines are recorded, with their paths.
    """
    parts = [
        *_own(),
        Environment.first().modules(family.facts.library),
        family_digest(family),
        str(seed),
        *(f"{module} {file_digest(path)}" for module, path in sorted(files.items())),
    ]
    return digest(part.encode() for part in parts)


def _own() -> Iterator[str]:
    """The parts of this package that decide which cases there are and how they are run.

    Properties of functions are left out: they are tried without a case.
    """
    root = Path(str(conformance.__file__)).parent
    for name in _DECIDING:
        paths = [root / name] if name.endswith(".py") else sorted((root / name).rglob("*.py"))
        for path in paths:
            if _PROPERTIES not in str(path.relative_to(root)):
                yield f"{path.relative_to(root)} {file_digest(path)}"


class ReachFolder:
    """Keeps reaches from run to run, in one file for each family.

    Args:
        folder: by default in the user's cache.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or user_cache() / "mutants"

    def read(self, library: str, family: str, key: str) -> Reach | None:
        """The family's reach; ``None`` if there is none with this key."""
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            data = self._path(library, family).read_bytes()
            reach = msgspec.json.decode(data, type=Reach)
            return reach if reach.key == key else None
        return None

    def write(self, reach: Reach) -> None:
        """Write the reach completely or not at all; if it fails, it is recorded again."""
        path = self._path(reach.library, reach.family)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            whole = path.with_suffix(".whole")
            whole.write_bytes(msgspec.json.encode(reach))
            whole.replace(path)

    def _path(self, library: str, family: str) -> Path:
        return self._folder / f"{library}-{family}{_SUFFIX}"


def ranges(lines: int) -> Iterator[tuple[int, int]]:
    """The runs of adjacent lines in a set, each as its first and last line."""
    number = 0
    while lines >> number:
        if lines >> number & 1:
            first = number
            while lines >> number & 1:
                number += 1
            yield first, number - 1
        number += 1


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
