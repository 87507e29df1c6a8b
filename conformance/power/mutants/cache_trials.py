"""Tries mutants of cache classes in random sequences of the caches' methods: ``audit caches``.

A generator calls a cache in few ways, and masks hide the contents that it never reads. Here each
method is called in any order, and all contents and reports are compared with plain rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from conformance.core.verdict import Verdict
from conformance.power.caches.cache_defects import explain, load_cache_defects, shows
from conformance.power.caches.discovery import Found, discover
from conformance.power.caches.sequences import explore
from conformance.power.mutants.putting_in import PutIn
from conformance.power.mutants.reach import Place
from conformance.report.mutants import Mutant, MutantKill

CASE = "conformance audit caches"
"""The name used in place of a case in the results."""
# Sequences for each class: twice the command's default; fewer for a slow class.
_EXAMPLES, _SLOW_EXAMPLES = 160, 30
_SLOW = "BatchTurboQuantKVCache"
_SECONDS = 20.0
# Files that all caches of a library use: masks, and keeping caches.
_SHARED = ("models/base.py", "apc_adapters.py")
# Called only by classes without a function of this name.
_WITHIN = {"PromptTrie": "LRUPromptCache"}
# The code that keeps caches in files.
_FILES = "DiskBlockStore."

# Called before each class with a place that represents it, and whether the mutant is in.
Announce = Callable[[Place, bool], None]


class CacheTrials:
    """Runs the caches that a mutant may change; remembers which are right without it."""

    def __init__(self, announce: Announce) -> None:
        self._announce = announce
        self._defects = load_cache_defects()
        self._all = discover()
        self._right: dict[str, bool] = {}

    def kill(self, mutant: Mutant, put_in: PutIn) -> MutantKill | None:
        """The difference of a cache class with the mutant; ``None`` if no class differs."""
        for found in classes_for(mutant, self._all):
            place = Place(CASE, found.name, _SECONDS, good=True)
            if found.name not in self._right:
                self._announce(place, False)
                self._right[found.name] = not self._problem(found)
            if not self._right[found.name]:
                continue
            self._announce(place, True)
            with put_in.active():
                problem = self._problem(found)
            if problem:
                return MutantKill(CASE, found.name, Verdict.DIVERGED.value, ("caches",), problem)
        return None

    def _problem(self, found: Found) -> str:
        """An unknown difference of a class, or a known one that is missing; empty if none."""
        known = partial(explain, self._defects)
        try:
            examples = _SLOW_EXAMPLES if found.cls.__name__ == _SLOW else _EXAMPLES
            outcome = explore(found, examples=examples, known=known, shrink=False)
        except Exception as error:  # noqa: BLE001 - a sequence ends in two ways, by the mutant
            return repr(error)
        if outcome.failure is not None:
            return str(outcome.failure)
        own = (entry for entry in self._defects if entry.played == found.name)
        lost = next((e.id for e in own if not shows(e, self._all, self._defects)), "")
        return f"the known defect {lost} does not show any more" if lost else ""


def classes_for(mutant: Mutant, classes: Sequence[Found]) -> Iterator[Found]:
    """The classes that may run the mutant's code: its own class, subclasses, else all.

    For a function outside of classes, such as of masks or a codec, these are all of its file.
    """
    library, _, rest = mutant.module.partition("/")
    shared = rest in _SHARED or mutant.function.startswith(_FILES)
    own = [
        found
        for found in classes
        if f"{found.cls.__module__.replace('.', '/')}.py" == mutant.module
        or (shared and found.cls.__module__.startswith(f"{library}."))
    ]
    name = mutant.function.partition(".")[0]
    name = _WITHIN.get(name, name)
    of_class = [found for found in own if any(c.__name__ == name for c in found.cls.__mro__)]
    # A store calls functions on single-stream caches, for example to cut them.
    yield from of_class or own
