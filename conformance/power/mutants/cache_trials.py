"""Tries mutants of cache classes in random sequences of the caches' methods: ``audit caches``.

A generator calls a cache in few ways, and masks hide what it never reads. Beside plain rows each
method is called in any order, and all that a cache holds and says is compared.
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
"""What stands for a case in the results."""
# Sequences of each class: twice what the command plays by default; less of one that is slow.
_EXAMPLES, _SLOW_EXAMPLES = 160, 30
_SLOW = "BatchTurboQuantKVCache"
_SECONDS = 20.0
# Files that all caches of a library use: for masks, and to be kept.
_SHARED = ("models/base.py", "apc_adapters.py")
# Called by a class alone that has no function of that name.
_WITHIN = {"PromptTrie": "LRUPromptCache"}
# What keeps them in files.
_FILES = "DiskBlockStore."

# Called before each class: a place that stands for it, whether the mutant is in.
Announce = Callable[[Place, bool], None]


class CacheTrials:
    """Plays the caches that a mutant may change; which are right without it is kept."""

    def __init__(self, announce: Announce) -> None:
        self._announce = announce
        self._defects = load_cache_defects()
        self._all = discover()
        self._right: dict[str, bool] = {}

    def kill(self, mutant: Mutant, put_in: PutIn) -> MutantKill | None:
        """How a cache class differs with the mutant; ``None`` if none does."""
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
        """What of a class is wrong and not known, or known and not there; empty if nothing."""
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
    """The classes that may run the mutant's code: its own, those derived from it, else all.

    Of a function that belongs to none of them, such as one of masks or of a codec, all of its file.
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
    # A store calls functions for single streams' caches, such as those that cut them.
    yield from of_class or own
