"""What a fault is: a small named defect that can be put into a running library and taken out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A historic defect that can be re-enacted.

    Attributes:
        name: its id.
        fault_class: one of the classes that the fault catalogue distinguishes.
        source: the pull request or issue that it re-enacts.
        library: the library that it is put into.
        kills: the scenarios of which at least one must catch it.
        inject: a context manager; inside it the defect is there, afterwards without a trace gone.
    """

    name: str
    fault_class: str
    source: str
    library: str
    kills: tuple[str, ...]
    inject: Callable[[], AbstractContextManager[None]]
