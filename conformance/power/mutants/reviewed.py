"""The reviewed files: mutants that nothing can distinguish, code that no run reaches, and why.

``reviewed.toml`` is about both libraries, others are about one. An entry names mutants by the text
of the lines that they change, so that it holds as long as these stay the same.
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
# In the text of a line it stands for any other.
ANY = "<any>"


class Equivalent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mutant that gives the same results as the code without it.

    Attributes:
        module: the file, as ``mlx_lm/models/cache.py``.
        function: as ``Class.method``; a glob.
        before: the lines that it changes, each without white space around it; ``<any>`` in them
            stands for any text.
        after: what they become, alike; any, if it is left out.
        reason: why nothing can distinguish it.
        operator: any, if it is left out.
    """

    module: str
    function: str
    before: str
    reason: str
    after: str = ANY
    operator: str = "*"

    def names(self, mutant: Mutant) -> bool:
        """Whether it is about this mutant."""
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
        reason: why no case can run it, or none should.
    """

    module: str
    function: str
    reason: str


class Reviewed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the file has in it."""

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
        """The entries of equivalent mutants that name none of these."""
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
    """The entries of a file; by default of the project's own.

    Raises:
        ConformanceError: it cannot be read, or an entry lacks a field; says which file.
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
