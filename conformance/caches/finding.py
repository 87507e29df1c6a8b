"""What a cache does wrong: at which verb, in what, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

WHATS = (
    "contents mask offset alias dtype shape nbytes size empty lengths bounds returned error"
).split()


class Problem(NamedTuple):
    """One difference between a cache and the reference."""

    what: str
    text: str


Problems = Iterator[Problem]
Report = Callable[[Problem], None]


class FindingError(AssertionError):
    """A cache that differs from the reference, and by which verbs."""

    def __init__(
        self, name: str, verb: str, problem: Problem, facts: frozenset[str], steps: Sequence[str]
    ) -> None:
        self.name = name
        self.verb = verb
        self.problem = problem
        self.facts = facts
        self.steps = tuple(steps)
        super().__init__(f"{name}, {verb}: {problem.what}: {problem.text}")

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "class": self.name,
            "verb": self.verb,
            "what": self.problem.what,
            "text": self.problem.text,
            "facts": sorted(self.facts),
            "steps": list(self.steps),
        }
