"""The outcome of each mutant: the lines of a result file of ``conformance audit mutants``."""

from __future__ import annotations

import enum
import hashlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from conformance.core.errors import ResultError
from conformance.core.grouping import grouped
from conformance.report.jsonl import read_records


class Fate(enum.StrEnum):
    """The fate of a mutant.

    ``same in both streams``: a check detects it if only the batch runs the mutated code, and none
    if the single stream runs it, too. ``equivalent``: a reviewed entry says why nothing can detect
    it, or it compiles to the same code. ``invalid``: it is not a valid program, or cannot be put
    in.
    """

    KILLED = "killed"
    SURVIVED = "survived"
    UNREACHED = "unreached"
    SAME = "same in both streams"
    EQUIVALENT = "equivalent"
    INVALID = "invalid"


class Kind(enum.StrEnum):
    """Where the mutated code is: in a function's body, its defaults, or a constant outside."""

    BODY = "body"
    DEFAULT = "default"
    CONSTANT = "constant"


class Mutant(msgspec.Struct, frozen=True, omit_defaults=True):
    """A small change of a library's source.

    Attributes:
        module: file below the installed packages: ``mlx_lm/models/cache.py``.
        function: the innermost function, as ``Class.method``; the class of a constant, or empty.
        operator: the operator of mutmut that made it.
        before: the source lines that it changes, each without the white space around it.
        after: the changed lines.
        nth: index among the function's mutants that are equal in all fields above, from 0.
        line: the first line that it changes, from 1.
        reached_by: first and last line of the statement: one of them must run.
        start: where the change begins in the module's text, in characters.
        end: where the change ends.
        text: the replacement.
    """

    module: str
    function: str
    operator: str
    before: str
    after: str
    line: int
    reached_by: tuple[int, int]
    start: int
    end: int
    text: str
    kind: Kind = Kind.BODY
    nth: int = 0

    @property
    def key(self) -> tuple[str, str, str, str, str, int]:
        """Its identity without line numbers, which other changes of the file move."""
        return (self.module, self.function, self.operator, self.before, self.after, self.nth)

    @property
    def name(self) -> str:
        """A short name, stable as long as its function's line is unchanged: ``a3f09c1b2d``."""
        return hashlib.sha256("\0".join(map(str, self.key)).encode()).hexdigest()[:10]


class MutantKill(msgspec.Struct, frozen=True, omit_defaults=True):
    """The case that detected a mutant.

    Attributes:
        case: its id.
        schedule: the schedule that was run.
        verdict: the schedule's verdict; ``cost`` if only a figure of the run got worse.
        checks: checks with a finding that the run without the mutant lacks.
        what: the worst of these findings.
    """

    case: str
    schedule: str
    verdict: str
    checks: tuple[str, ...] = ()
    what: str = ""


class MutantResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """A mutant and its fate: one line of the file.

    Attributes:
        library: the library that it changes.
        versions: versions of that library.
        kill: the first case that detected it.
        played: schedules that were run with it.
        reaching: schedules that run its line.
        unplayed: cases that reach it but ran no schedule, because of the limit.
        why: the reason why it is equivalent, invalid or unreached.
        seconds: time of all its runs.
    """

    mutant: Mutant
    library: str
    fate: Fate
    versions: dict[str, str] = {}
    kill: MutantKill | None = None
    played: int = 0
    reaching: int = 0
    unplayed: int = 0
    why: str = ""
    seconds: float = 0.0
    schema: int = 1


class Tally(NamedTuple):
    """The number of mutants by fate."""

    counts: Counter[Fate]

    @property
    def killed(self) -> int:
        """Mutants that a check detected."""
        return self.counts[Fate.KILLED]

    @property
    def of(self) -> int:
        """Mutants that a check should detect: killed or survived."""
        return self.counts[Fate.KILLED] + self.counts[Fate.SURVIVED]

    @property
    def share(self) -> float | None:
        """The killed share of these; ``None`` if there are none."""
        return self.killed / self.of if self.of else None


def tally(results: Iterable[MutantResult]) -> Tally:
    """The fates of these results."""
    return Tally(Counter(result.fate for result in results))


def by_module(results: Iterable[MutantResult]) -> dict[str, list[MutantResult]]:
    """The results of each module, in the order of their names."""
    return dict(sorted(grouped(results, lambda result: result.mutant.module).items()))


def read_mutants(paths: Iterable[Path]) -> tuple[MutantResult, ...]:
    """The results of some files; for equal mutants of a library the last result counts.

    Raises:
        ResultError: a file cannot be read, or a line is not a result; the message names it.
    """
    what = "not a result of `conformance audit mutants`"
    found = {
        (result.library, *map(str, result.mutant.key)): result
        for path in paths
        for result in read_records(path, MutantResult, what, ResultError)
    }
    return tuple(found.values())
