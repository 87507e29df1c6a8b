"""What a fault is: a small named defect that can be put into a running library and taken out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any


@dataclass
class Hits:
    """How often the defective code ran where it differs from the right one."""

    count: int = 0

    def hit(self) -> None:
        """Note that the defect took effect."""
        self.count += 1


@dataclass(frozen=True)
class Fault:
    """A historic defect that can be re-enacted.

    Attributes:
        name: its id, with the entry of the catalogue it re-enacts: ``A1.state-at-padded-end``.
        fault_class: one of the classes that the fault catalogue distinguishes.
        source: the pull request or issue that it re-enacts.
        summary: what is wrong, in one sentence.
        engine: the engine that it is put under.
        needs: traits that a family must have for the defect to be able to show, each a glob, with
            ``|`` between alternatives; see ``traits``.
        kills: the scenarios of which at least one must catch it, the cheapest first; with a
            schedule, ``held/decoding``, where the scenario's others do not look for such a thing.
        inject: a context manager; inside it the defect is there, afterwards without a trace gone.
        crash: the historic defect was a crash, so that a crash kills it.
        priced: the answers stay right; a figure of the run that gets worse kills it.
        where: globs, with ``|`` between, of the place that it breaks as ``conformance explain``
            names places; empty where it has none, as in an engine's lists or in costs.
    """

    name: str
    fault_class: str
    source: str
    summary: str
    engine: str
    needs: tuple[str, ...]
    kills: tuple[str, ...]
    inject: Callable[[Hits], AbstractContextManager[None]]
    crash: bool = False
    priced: bool = False
    where: str = ""

    @property
    def scenarios(self) -> tuple[str, ...]:
        """The scenarios that ``kills`` names."""
        return tuple(dict.fromkeys(place.partition("/")[0] for place in self.kills))

    def may_show(self, scenario: str, schedule: str) -> bool:
        """Whether that schedule is one in which it must be caught, or any of its scenario is."""
        named = [
            place.partition("/")[2] for place in self.kills if scenario == place.partition("/")[0]
        ]
        return not any(named) or schedule in named

    @property
    def key(self) -> str:
        """Names it among the faults of all engines: ``mlx_lm/A1.state-at-padded-end``."""
        return f"{self.engine}/{self.name}"

    def lacks(self, traits: Collection[str]) -> str:
        """The first need that no trait meets; empty where the fault can show."""
        for need in self.needs:
            globs = need.split("|")
            if not any(fnmatchcase(trait, glob) for trait in traits for glob in globs):
                return need
        return ""


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """``owner.name`` is ``value`` inside the block; afterwards what it was, or not there at all.

    What a class inherits is left alone: the attribute is put on the class itself and taken away.
    """
    own = vars(owner)
    missing = object()
    before = own.get(name, missing)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is missing:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
