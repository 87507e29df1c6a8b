"""The results of the test of cache classes in a release, as ``audit caches --json`` writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from conformance.core.errors import ResultError
from conformance.report.jsonl import read_records


class Difference(msgspec.Struct, frozen=True):
    """One difference between a cache and plain rows.

    Attributes:
        signature: the same for the same defect, whichever sequence shows it.
        text: the difference in words, for one sequence.
        steps: the verbs of that sequence.
    """

    signature: str
    text: str
    steps: tuple[str, ...] = ()


class CacheOutcome(msgspec.Struct, frozen=True):
    """The results of the sequences on one class; ``methods`` are the verbs that the class has."""

    name: str = msgspec.field(name="class")
    verdict: str = ""
    methods: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()


def read_outcomes(path: Path) -> tuple[CacheOutcome, ...]:
    """Read the outcomes in a file, by class.

    Raises:
        ResultError: the file cannot be read, or a line is no outcome; names the line.
    """
    what = "not a result of `conformance audit caches --every`"
    return tuple(read_records(path, CacheOutcome, what, ResultError))


def changes(columns: Sequence[tuple[str, Sequence[CacheOutcome]]]) -> list[str]:
    """Lines about everything that differs between releases, from the oldest to the newest.

    Args:
        columns: a release's name, and the outcomes of its cache classes.
    """
    given = [(name, {one.name: one for one in outcomes}) for name, outcomes in columns if outcomes]
    lines = []
    for cls in sorted({cls for _, found in given for cls in found}):
        having = [(name, found.get(cls)) for name, found in given]
        lines += _line(f"{cls}", [(name, one is not None) for name, one in having], "is there")
        there = [(name, one) for name, one in having if one is not None]
        for method in _all(one.methods for _, one in there):
            seen = [(name, method in one.methods) for name, one in there]
            lines += _line(f"{cls} {method}", seen, "is there")
        for which in _all([d.signature for d in one.differences] for _, one in there):
            shown = [
                (name, next((d for d in one.differences if d.signature == which), None))
                for name, one in there
            ]
            example = next(d for _, d in shown if d is not None)
            seen = [(name, d is not None) for name, d in shown]
            what = f"{cls} after {', '.join(example.steps)}"
            text = example.text.partition("\n")[0]
            lines += [f"{line} - {text}" for line in _line(what, seen, "differs")]
    return lines


def _all(each: Iterable[Sequence[str]]) -> list[str]:
    return sorted({name for names in each for name in names})


def _line(what: str, seen: Sequence[tuple[str, bool]], word: str) -> list[str]:
    """One line if it holds in some releases but not in others."""
    if len({so for _, so in seen}) < 2:
        return []
    each = (f"{word if so else 'not'} in {name}" for name, so in seen)
    return [f"{what}: {'; '.join(each)}"]
