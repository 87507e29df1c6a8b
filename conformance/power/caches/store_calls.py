"""Calls of stores of tokens, drawn at random and compared with plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from hypothesis import strategies as st

from conformance.power.caches.finding import FindingError, Problem, raised_at

Call = tuple[str, tuple[Any, ...]]


def call(name: str, *numbers: st.SearchStrategy[Any]) -> st.SearchStrategy[Call]:
    """Calls of this name with drawn numbers."""
    return st.tuples(st.just(name), st.tuples(*numbers))


class DiffersError(AssertionError):
    """The store differs from plain data."""

    def __init__(self, what: str, text: str) -> None:
        self.problem = Problem(what, text)
        super().__init__(text)


def agree(what: str, said: object, right: object) -> None:
    """Raise ``DiffersError`` if the store's value differs from plain data."""
    if said != right:
        raise DiffersError("returned", f"{what}: {said}, where {right} is right")


class Store(Protocol):
    """A store made from its class, and the programs to draw for it."""

    programs: ClassVar[st.SearchStrategy[tuple[Call, list[Call]]]]

    def __init__(self, cls: type[Any]) -> None: ...

    def compare(self) -> None:
        """Raise ``DiffersError`` for the first difference."""


def play_store(name: str, store: Store, calls: Sequence[Call], verbs: Counter[str]) -> None:
    """Make the calls, and compare after each.

    Raises:
        FindingError: the first difference.
    """
    steps = []
    for verb, numbers in calls:
        steps.append(f"{verb} {' '.join(map(str, numbers))}")
        verbs[verb] += 1
        try:
            getattr(store, verb)(*numbers)
            store.compare()
        except DiffersError as error:
            problem = error.problem
        except Exception as error:  # noqa: BLE001 (whatever the library raises is the finding)
            text = f"{type(error).__name__}: {error}{raised_at(error)}"
            problem = Problem("error", text)
        else:
            continue
        raise FindingError(name, verb, problem, facts=frozenset(), steps=steps)
