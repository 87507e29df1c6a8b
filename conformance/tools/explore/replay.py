"""The scenario that runs the corpus."""

from __future__ import annotations

import functools

import msgspec

from conformance.core.family import Family
from conformance.core.schedule import Schedule
from conformance.scenarios import Brief, Scenario
from conformance.scenarios.features import NEEDS, features_of
from conformance.tools.explore.corpus import Entry, read_corpus


@functools.cache
def _corpus() -> tuple[Entry, ...]:
    return read_corpus()


def _applies(family: Family) -> str:
    mine = (family.facts.library, family.name)
    if any((entry.library, entry.family) == mine for entry in _corpus()):
        return ""
    return "no schedule of the corpus was found on it"


def _make(brief: Brief) -> list[Schedule]:
    """The family's schedules that the engine can play, named like their files."""
    return [
        msgspec.structs.replace(entry.schedule, name=entry.name)
        for entry in _corpus()
        if (entry.library, entry.family) == (brief.library, brief.family)
        if all(NEEDS[feature] <= brief.capabilities for feature in features_of(entry.schedule))
    ]


CORPUS = Scenario(
    "corpus",
    200,
    "schedules that exploring once found to show a defect",
    frozenset(),
    _make,
    applies=_applies,
)
