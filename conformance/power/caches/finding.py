"""A difference between a cache and the reference: after which verb, in what, as text."""

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
    """The problem, with the number of tokens that were fed at once."""
    return Problem(problem.what, f"{problem.text} ({width} at once)")


def several(problem: Problem) -> bool:
    """Whether it was found with several tokens fed at once."""
    return re.search(r"\((?!1 )\d+ at once", problem.text) is not None


class FindingError(AssertionError):
    """A cache differs from the reference; with the sequence of verbs that led to it."""

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


# In a message what hangs on the sequence that was drawn.
_DRAWN = re.compile(r"0x[0-9a-f]+|-?\d+(\.\d+)?(e[+-]?\d+)?")
# Of a list, whose length hangs on it, too, one is kept.
_REPEATED = re.compile(r"((?:row )?#[@#]*(?: \(written at #\))?)(?:,? *(?:and )?\1(?: more)?)+")
_MOST = 120


def signature(finding: FindingError) -> str:
    """The same for the same defect, whatever sequence shows it: verb, what differs, how."""
    text = _DRAWN.sub("#", finding.problem.text.partition("\n")[0])
    text = _REPEATED.sub(r"\1", text)[:_MOST]
    return f"{finding.verb}, {finding.problem.what}: {text}"


# Takes a finding and says whether it is known.
Judge = Callable[[FindingError], bool]
HARD = frozenset({"contents", "offset", "error", "returned", "shape", "lengths"})
"""After one of these the cache is corrupted: later differences mean nothing."""


class KnownError(Exception):
    """Ends a sequence: a known defect has corrupted the cache."""


def raised_at(error: Exception) -> str:
    """The function and line of the library where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    own = Path(__file__).parent
    theirs = [frame for frame in frames if own not in Path(frame.filename).parents]
    if not theirs:
        return ""
    last = theirs[-1]
    return f" ({Path(last.filename).name}:{last.lineno}, {last.name})"
