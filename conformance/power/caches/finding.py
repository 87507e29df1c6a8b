"""Differences between a cache and the reference, with the verb and the part that differs."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

WHATS = frozenset(
    {"contents", "mask", "offset", "lengths", "alias", "dtype", "shape", "nbytes", "size"}
    | {"empty", "returned", "error"}
)


class Problem(NamedTuple):
    """One difference between a cache and the reference."""

    what: str
    text: str


Problems = Iterator[Problem]


def at_once(problem: Problem, width: int) -> Problem:
    """The problem, with the number of tokens fed at once added."""
    return Problem(problem.what, f"{problem.text} ({width} at once)")


def several(problem: Problem) -> bool:
    """Whether the problem was found with several tokens fed at once."""
    return re.search(r"\((?!1 )\d+ at once", problem.text) is not None


class FindingError(AssertionError):
    """A cache differs from the reference; has the sequence of verbs that shows it."""

    def __init__(
        self,
        name: str,
        verb: str,
        problem: Problem,
        *,
        facts: frozenset[str],
        steps: Sequence[str],
        play: str = "",
    ) -> None:
        self.name = name
        self.verb = verb
        self.problem = problem
        self.facts = facts
        self.steps = tuple(steps)
        self.play = play
        super().__init__(f"{name}, {verb}: {problem.what}: {problem.text}")

    def as_dict(self) -> dict[str, Any]:
        """The finding as plain data, for JSON."""
        return {
            "class": self.name,
            "verb": self.verb,
            "what": self.problem.what,
            "text": self.problem.text,
            "facts": sorted(self.facts),
            "steps": list(self.steps),
            "play": self.play,
        }


# Parts of a message that depend on the drawn sequence.
_DRAWN = re.compile(r"0x[0-9a-f]+|-?\d+(\.\d+)?(e[+-]?\d+)?")
# Only one entry of a list is kept, because its length depends on the sequence too.
_REPEATED = re.compile(r"((?:row )?#[@#]*(?: \(written at #\))?)(?:,? *(?:and )?\1(?: more)?)+")
_MOST = 120


def signature(finding: FindingError) -> str:
    """The verb and the difference, equal for all sequences that show the same defect."""
    text = _DRAWN.sub("#", finding.problem.text.partition("\n")[0])
    text = _REPEATED.sub(r"\1", text)[:_MOST]
    return f"{finding.verb}, {finding.problem.what}: {text}"


# Returns whether a finding is known.
Judge = Callable[[FindingError], bool]
HARD = frozenset({"contents", "offset", "error", "returned", "shape", "lengths"})
"""Differences after which the cache is corrupted, so that later ones mean nothing."""


class KnownError(Exception):
    """Ends a sequence: a known defect has corrupted the cache."""


def raised_at(error: Exception) -> str:
    """The function and line of the library that raised the error."""
    frames = traceback.extract_tb(error.__traceback__)
    own = Path(__file__).parent
    theirs = [frame for frame in frames if own not in Path(frame.filename).parents]
    if not theirs:
        return ""
    last = theirs[-1]
    return f" ({Path(last.filename).name}:{last.lineno}, {last.name})"
