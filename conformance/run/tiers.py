"""Tiers: how much of the ladder is run, chosen by which schedules catch faults.

``full`` runs everything. ``default`` skips redundant schedules, and runs scenarios that test the
engine rather than the model on one family of each kind. ``quick`` skips whole rungs. The choice is
data, ``tiers.json``, which ``conformance audit tiers`` writes; schedules that it does not know are
run.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib import resources

import msgspec

from conformance.core.errors import ConformanceError
from conformance.core.family import Family
from conformance.core.names import FULL, QUICK, TIERS, did_you_mean
from conformance.core.representatives import chosen_of, representatives
from conformance.core.schedule import Schedule

FILE = "tiers.json"
_MARATHON, _OPTIONS = "marathon", "traffic_options"
COSTLY = frozenset({_MARATHON, "distributions", "traffic_leaves"})
"""Scenarios that test the engine by many requests, too many for a checkpoint."""
_SERVED = "served_"  # prefix of the servers' scenarios
# The rung that is hardest for a model's own code: unequal rows in one prefill.
_TWICE = "ragged"

Globs = dict[str, tuple[str, ...]]
"""For a scenario, globs of its schedules; ``*`` is the whole scenario."""

# Their outcome depends on the engine and the kind of cache, not on the model; or they are long; or
# a workload has what is in them.
OF_KINDS: Globs = {
    "cancelled": ("decode*", "every_stage", "longest_in_decode", "prefill*", "queued"),
    "chunked": ("long",),
    "distributions": ("*",),
    "early_finish": ("*",),
    "equal_length": ("*",),
    "held": ("*",),
    "identical": ("*",),
    "invalid": ("*",),
    "kept": ("*",),
    "marathon": ("*",),
    "prefix_caching": ("*",),
    "prompt_cache": ("segments_with_options",),
    "quantized": ("*turbo*",),
    "ragged": ("long",),
    "samplers": ("*",),
    "slot_reuse": ("*",),
    "speculative": ("*",),
    "staggered": ("*",),
    "stop_sequences": ("*",),
    "structured": ("*",),
    "threads": ("*",),
    "traffic": ("few_slots", "lengths_meet"),
    "traffic_drafts": ("*_drawn", "*_unlike"),
    "traffic_kept": ("*",),
    "traffic_leaves": ("*",),
    "traffic_media": ("*",),
    "traffic_options": ("*",),
    "traffic_quantized": ("*",),
    "wide": ("of_9", "of_17", "of_33"),
    "window": ("even", "turns"),
}


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a tier runs of one library's families, and its measured power and cost.

    Attributes:
        killed: pairs of a fault and a family that its schedules catch.
        of: pairs that the full ladder catches.
        share: its part of the full ladder's seconds, without later additions.
        left_out: schedules that no family runs.
        of_kinds: schedules that only families which represent a kind run (``Facts.quick``); by
            default ``OF_KINDS``.
    """

    killed: int
    of: int
    share: float
    left_out: Globs
    of_kinds: Globs | None = None


class TierData(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of ``tiers.json``.

    Attributes:
        date: the date of the choice, such as 2026-11-22.
        extended: when schedules were added for newer faults; empty if never.
        versions: versions of the packages whose families were run.
        tiers: by tier and library.
    """

    date: str
    versions: dict[str, str]
    tiers: dict[str, dict[str, Choice]]
    extended: str = ""


@dataclass(frozen=True)
class Tier:
    """One tier; a library without a choice runs everything."""

    name: str = FULL
    choices: dict[str, Choice] = field(default_factory=dict)

    def leaves_out(self, library: str) -> bool:
        """Whether any of the library's families does not run the whole ladder."""
        return library in self.choices

    def plays(self, family: Family, scenario: str) -> bool:
        """Whether the family runs any of the scenario."""
        if self.name != FULL and scenario.startswith(_SERVED):
            return representatives().serves(family, scenario)
        if self.name == QUICK and scenario == _OPTIONS:
            return family.name in chosen_of(representatives().options, family)
        if scenario in COSTLY and (self.name != FULL or family.checkpoint is not None):
            found = representatives()
            table = found.marathon if scenario == _MARATHON else found.costly
            chosen = family.name in chosen_of(table, family)
            return chosen and "*" not in self._without(family, scenario)
        return "*" not in self._without(family, scenario)

    def half(self, family: Family, scenario: str) -> bool:
        """Whether the family runs the scenario in half precision, too, if no dtype is chosen."""
        if self.name == QUICK or family.checkpoint is not None:
            return False
        found, library = representatives(), family.facts.library
        named = family.name in found.half.get(library, ())
        return named and scenario in found.half_scenarios.get(library, ())

    def kept(
        self, family: Family, scenario: str, schedules: Sequence[Schedule]
    ) -> tuple[Schedule, ...]:
        """The scenario's schedules that the family runs; all if none would be left."""
        kept = tuple(s for s in schedules if self.keeps(family, scenario, s.name))
        return kept or tuple(schedules)

    def keeps(self, family: Family, scenario: str, schedule: str) -> bool:
        """Whether the family runs that schedule, if it also runs others."""
        return not any(fnmatchcase(schedule, glob) for glob in self._without(family, scenario))

    def trims(self, family: Family, scenario: str) -> bool:
        """Whether the family may not run all schedules of the scenario."""
        return bool(self._without(family, scenario))

    def twice(self, family: Family, scenario: str) -> bool:
        """Whether the family runs the scenario's first schedule twice whatever its result.

        Families that represent a kind do so on every rung, the others on one: an engine behaves
        much the same with each, and a result that differs from the oracle is rerun anyway.
        """
        if family.facts.library not in self.choices:
            return True
        return family.facts.quick or scenario == _TWICE

    def _without(self, family: Family, scenario: str) -> tuple[str, ...]:
        choice = self.choices.get(family.facts.library)
        if choice is None:
            return ()
        chosen = OF_KINDS if choice.of_kinds is None else choice.of_kinds
        of_kinds = () if family.facts.quick else chosen.get(scenario, ())
        return (*choice.left_out.get(scenario, ()), *of_kinds)


WHOLE = Tier()
"""The full ladder."""


@functools.cache
def tier(name: str) -> Tier:
    """The tier with this name.

    Raises:
        ConformanceError: there is no such tier.
    """
    if name not in TIERS:
        there = f"; there are {', '.join(TIERS)}{did_you_mean(name, TIERS)}"
        raise ConformanceError(f"no tier {name!r}{there}")
    return WHOLE if name == FULL else Tier(name, read_tiers().tiers[name])


def read_tiers() -> TierData:
    """The data in the installed package."""
    file = resources.files("conformance.run") / FILE
    return msgspec.json.decode(file.read_bytes(), type=TierData)
