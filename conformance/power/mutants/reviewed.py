"""The reviewed files: equivalent mutants and code that no run reaches, with reasons.

``reviewed.toml`` covers both libraries, the other files one each. An entry names mutants by the
text of the lines that they change, so it stays valid as long as these lines are the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path

import msgspec

from conformance.core.errors import ConformanceError
from conformance.core.user_files import read_toml, typed
from conformance.report.mutants import Mutant

FILES = "reviewed*.toml"
# In the text of a line, it matches any text.
ANY = "<any>"


class Equivalent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mutant that gives the same results as the code without it.

    Attributes:
        module: the file, as ``mlx_lm/models/cache.py``.
        function: a glob of ``Class.method``.
        before: the lines that it changes, each without surrounding white space; ``<any>`` in them
            matches any text.
        after: the changed lines, in the same form; if omitted, any lines.
        reason: why nothing can distinguish it.
        operator: the mutation operator; if omitted, any.
    """

    module: str
    function: str
    before: str
    reason: str
    after: str = ANY
    operator: str = "*"

    def names(self, mutant: Mutant) -> bool:
        """Whether the entry matches this mutant."""
        return (
            self.module == mutant.module
            and fnmatchcase(mutant.function, self.function)
            and fnmatchcase(mutant.operator, self.operator)
            and _like(self.before, mutant.before)
            and _like(self.after, mutant.after)
        )


class Unreached(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Functions that no case runs, with the reason.

    Attributes:
        module: a glob of files.
        function: a glob of ``Class.method``.
        reason: why no case can or should run it.
    """

    module: str
    function: str
    reason: str


class Reviewed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of a file."""

    equivalent: tuple[Equivalent, ...] = ()
    unreached: tuple[Unreached, ...] = ()

    def equivalence(self, mutant: Mutant) -> str:
        """Why the mutant is equivalent; empty if no entry says so."""
        return next((entry.reason for entry in self.equivalent if entry.names(mutant)), "")

    def why_unreached(self, module: str, function: str) -> str:
        """Why no case runs the function; empty if no entry says so."""
        return next(
            (
                entry.reason
                for entry in self.unreached
                if fnmatchcase(module, entry.module) and fnmatchcase(function, entry.function)
            ),
            "",
        )

    def unused(self, mutants: Iterable[Mutant]) -> tuple[Equivalent, ...]:
        """The entries of equivalent mutants that match none of these mutants."""
        by_module: dict[str, list[Mutant]] = {}
        for mutant in mutants:
            by_module.setdefault(mutant.module, []).append(mutant)
        return tuple(
            entry
            for entry in self.equivalent
            if not any(map(entry.names, by_module.get(entry.module, ())))
        )


def _like(pattern: str, text: str) -> bool:
    parts = map(re.escape, pattern.strip().split(ANY))
    return re.fullmatch(".*".join(parts), text, re.DOTALL) is not None


def read_reviewed(path: Path | None = None) -> Reviewed:
    """The entries of a file; by default the project's own.

    Raises:
        ConformanceError: the file cannot be read, or an entry lacks a field; names the file.
    """
    if path is not None:
        return _read(path)
    folder = resources.files("conformance.power.mutants")
    files = (file for file in folder.iterdir() if fnmatchcase(file.name, FILES))
    read = [_read(Path(str(file))) for file in sorted(files, key=lambda file: file.name)]
    return Reviewed(
        tuple(entry for one in read for entry in one.equivalent),
        tuple(entry for one in read for entry in one.unreached),
    )


def _read(file: Path) -> Reviewed:
    where = f"{file}: not a file of reviewed mutants"
    return typed(read_toml(file, ConformanceError), Reviewed, where, ConformanceError)
