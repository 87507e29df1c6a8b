"""The reviewed file: mutants that nothing can distinguish, code that no run reaches, and why.

An entry names a mutant by the text of the lines that it changes, so that it holds as long as these
stay the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path

import msgspec

from conformance.core.errors import ConformanceError
from conformance.core.user_files import read_toml, typed
from conformance.report.mutants import Mutant

FILE = "reviewed.toml"


class Equivalent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mutant that gives the same results as the code without it.

    Attributes:
        module: the file, as ``mlx_lm/models/cache.py``.
        function: as ``Class.method``.
        before: the lines that it changes, each without white space around it.
        after: what they become.
        reason: why nothing can distinguish it.
        operator: any, if it is left out.
    """

    module: str
    function: str
    before: str
    after: str
    reason: str
    operator: str = "*"

    def names(self, mutant: Mutant) -> bool:
        """Whether it is about this mutant."""
        return (
            (self.module, self.function) == (mutant.module, mutant.function)
            and (self.before.strip(), self.after.strip()) == (mutant.before, mutant.after)
            and fnmatchcase(mutant.operator, self.operator)
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
        by_place: dict[tuple[str, str], list[Mutant]] = {}
        for mutant in mutants:
            by_place.setdefault((mutant.module, mutant.function), []).append(mutant)
        return tuple(
            entry
            for entry in self.equivalent
            if not any(map(entry.names, by_place.get((entry.module, entry.function), ())))
        )


def read_reviewed(path: Path | None = None) -> Reviewed:
    """The entries of a file; by default of the project's own.

    Raises:
        ConformanceError: it cannot be read, or an entry lacks a field; says which file.
    """
    file = path or resources.files("conformance.tools.mutants") / FILE
    where = f"{file}: not a file of reviewed mutants"
    return typed(read_toml(Path(str(file)), ConformanceError), Reviewed, where, ConformanceError)
