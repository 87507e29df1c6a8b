"""Which of the fields that a library accepts are set to two values by the schedules.

What a schedule sets is recorded from the adapter's own calls (``Engine.passed``). A field that is
for one request counts if requests next to each other have two values of it; a field that is for the
whole engine, if schedules with several requests do. A field may instead be in the reviewed list,
with its reason. All others are gaps.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import resources

import msgspec
import numpy as np

from conformance.core.accepted_fields import Accepted, Passed
from conformance.core.engine import Capability, Engine
from conformance.core.errors import ModelError, Unsupported
from conformance.core.family import Family
from conformance.core.names import DEFAULT
from conformance.core.phases import Phases
from conformance.core.representatives import representatives
from conformance.core.schedule import Request, Schedule, Stage
from conformance.core.trace import Stream
from conformance.reference.subject import Subject
from conformance.run.judging.judge import brief_for
from conformance.run.largest_values import LargestValues
from conformance.run.registry import Registry
from conformance.run.tiers import tier

REVIEWED_FILE = "field_coverage.toml"
KNOWN_FILE = "accepted_fields.json"

Known = Mapping[str, Accepted]
"""What each engine's library accepts."""


class State(enum.StrEnum):
    """What is known of a field."""

    SET = "set"  # to two values, beside another request
    REVIEWED = "reviewed"  # in the list, with a reason
    GAP = "gap"


@dataclass(frozen=True)
class FieldState:
    """A field of an engine's library.

    Attributes:
        why: the schedule that sets it and two of its values, or the reviewed reason; empty for a
            gap.
    """

    engine: str
    place: str
    field: str
    state: State
    why: str = ""


class Reviewed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of the reviewed list: globs of an engine, a place and fields; why none is set."""

    engine: str
    place: str
    fields: tuple[str, ...]
    reason: str

    def means(self, engine: str, place: str, field: str) -> bool:
        """Whether the entry is for this field."""
        own = fnmatchcase(engine, self.engine) and fnmatchcase(place, self.place)
        return own and any(fnmatchcase(field, glob) for glob in self.fields)


def reviewed_entries() -> tuple[Reviewed, ...]:
    """The reviewed list in the installed package."""
    text = (resources.files("conformance.run") / REVIEWED_FILE).read_bytes()
    entries = msgspec.toml.decode(text, type=dict[str, tuple[Reviewed, ...]])
    return entries["reviewed"]


# The table ---------------------------------------------------------------------------------------


def covered(
    registry: Registry, engines: Sequence[str], largest: LargestValues | None = None
) -> tuple[FieldState, ...]:
    """The state of each field that these engines' libraries accept.

    Args:
        largest: collects the largest values of those schedules that the default tier runs.
    """
    entries = reviewed_entries()
    return tuple(
        state
        for name in engines
        if (accepted := registry.engines[name].accepted())
        for state in states_of(
            name, accepted, settings(registry, registry.engines[name], largest), entries
        )
    )


def stale(states: Sequence[FieldState], entries: Sequence[Reviewed]) -> tuple[str, ...]:
    """A sentence for each entry whose fields are all set, or are no longer accepted.

    Entries of engines without states are not judged.
    """
    engines = {state.engine for state in states}
    reviewed = [state for state in states if state.state is State.REVIEWED]
    return tuple(
        f"{REVIEWED_FILE}: {glob} ({entry.place}, {entry.engine}) is set, or not accepted any more"
        for entry in entries
        for glob in entry.fields
        if any(fnmatchcase(engine, entry.engine) for engine in engines)
        if not any(
            entry.means(one.engine, one.place, one.field) and fnmatchcase(one.field, glob)
            for one in reviewed
        )
    )


def states_of(
    engine: str,
    accepted: Accepted,
    found: Mapping[tuple[str, str], str],
    entries: Sequence[Reviewed],
) -> Iterator[FieldState]:
    """The state of each accepted field.

    Args:
        found: the fields that schedules set, with the schedule and two values.
    """
    for place, names in accepted.items():
        for name in names:
            if (place, name) in found:
                yield FieldState(engine, place, name, State.SET, found[place, name])
                continue
            reasons = (entry.reason for entry in entries if entry.means(engine, place, name))
            reason = next(reasons, "")
            yield FieldState(engine, place, name, State.REVIEWED if reason else State.GAP, reason)


def settings(
    registry: Registry, engine: type[Engine], largest: LargestValues | None = None
) -> dict[tuple[str, str], str]:
    """The fields that any schedule sets to two values: where, and which values."""
    found: dict[tuple[str, str], str] = {}
    for family in families_for(registry, engine):
        of_engine: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
        for name, schedule, passed in _played(registry, engine, family):
            where = f"{family.name}/{name}/{schedule.name}"
            if largest is not None and _by_default(family, name, schedule):
                largest.add(engine.name, where, schedule)
            for field, values in values_together(schedule, passed).items():
                found.setdefault(field, f"{where}: {' and '.join(values[:2])}")
            for one in passed if len(schedule.requests) > 1 else ():
                if one.arrival is None:
                    of_engine[one.place, one.name].setdefault(one.value, where)
        for field, schedules in of_engine.items():
            if len(schedules) > 1:
                (one_value, first), (other, second) = list(schedules.items())[:2]
                found.setdefault(field, f"{first}: {one_value}; {second}: {other}")
    return found


def values_together(
    schedule: Schedule, passed: Iterable[Passed]
) -> dict[tuple[str, str], tuple[str, ...]]:
    """The fields of single requests that have several values in requests next to each other.

    Requests are next to each other if they arrive together, or if one arrives while another is
    queued, prefilled or decoded.
    """
    groups = list(_groups(schedule))
    values: dict[tuple[int, str, str], dict[str, None]] = defaultdict(dict)
    for one in passed:
        if one.arrival is not None:
            values[groups[one.arrival], one.place, one.name][one.value] = None
    return {
        (place, name): tuple(several)
        for (_, place, name), several in values.items()
        if len(several) > 1
    }


def _groups(schedule: Schedule) -> Iterator[int]:
    """For each arrival, the number of its group."""
    group = 0
    for arrival in schedule.arrivals:
        group += arrival.when.stage in {Stage.FINISHED, Stage.REMOVED}
        yield group


# What the schedules pass -------------------------------------------------------------------------


def families_for(registry: Registry, engine: type[Engine]) -> tuple[Family, ...]:
    """The families that stand for the others, and the first with each kind of media and drafter."""
    tables = representatives()
    served = Capability.SERVED in engine.capabilities
    chosen: dict[str, Family] = {}
    features: set[str] = set()
    families = registry.families_of(engine)
    of_generators = (tables.counted, tables.counted_quantized, tables.costly, tables.marathon)
    used = (tables.served,) if served else of_generators
    for family in families:
        if any(family.name in table.get(engine.library, ()) for table in used):
            chosen[family.name] = family
    for family in () if served else families:
        own = {*family.facts.modalities, *family.facts.drafters}
        if not own <= features:
            chosen[family.name] = family
        features |= own
    return tuple(chosen.values())


def _played(
    registry: Registry, engine: type[Engine], family: Family
) -> Iterator[tuple[str, Schedule, Sequence[Passed]]]:
    """The scenarios' schedules for a family, and what is passed for each."""
    library = registry.libraries[engine.library]
    family = engine.variant(family)
    try:
        subject = Subject.load(library, family, dtype="float32", seed=0, phases=Phases())
    except ModelError:
        return
    brief = dataclasses.replace(
        brief_for(subject, engine, 0), solo=lambda request, _: _any_stream(family, request)
    )
    for scenario in registry.scenarios_for(engine, family):
        if scenario.oracle_only:
            continue
        try:
            schedules = scenario.make(brief)
        except Unsupported:
            continue
        for schedule in schedules:
            yield scenario.name, schedule, engine.passed(subject.model_for(engine), schedule)


def _by_default(family: Family, scenario: str, schedule: Schedule) -> bool:
    default = tier(DEFAULT)
    return default.plays(family, scenario) and default.keeps(family, scenario, schedule.name)


def _any_stream(family: Family, request: Request) -> Stream:
    """A stream in place of the model's own, on whose tokens no passed value depends.

    As many of its tokens differ as can; some tokens of the vocabulary are in no stream.
    """
    low, high = family.tokens
    rng = np.random.default_rng((len(request.prompt), sum(request.prompt)))
    tokens = np.resize(rng.permutation(high - low)[: (high - low) * 3 // 4], request.max_tokens)
    logprobs = np.zeros((request.max_tokens, family.vocab_size), np.float32)
    return Stream(tuple(int(token) + low for token in tokens), logprobs)


# What a newer release accepts --------------------------------------------------------------------


def known_fields() -> Known:
    """What the libraries accepted when the table was last reviewed, by engine."""
    text = (resources.files("conformance.run") / KNOWN_FILE).read_text(encoding="utf-8")
    found: dict[str, dict[str, list[str]]] = json.loads(text)
    return {
        engine: {place: tuple(names) for place, names in places.items()}
        for engine, places in found.items()
    }


def new_fields(engines: Iterable[type[Engine]], known: Known) -> tuple[str, ...]:
    """A sentence for each engine whose library accepts more than was known."""
    found = []
    for engine in engines:
        before = known.get(engine.name)
        if before is None:
            continue
        new = [
            f"{name} ({place})"
            for place, names in engine.accepted().items()
            for name in names
            if name not in before.get(place, ())
        ]
        if new:
            found.append(
                f"{engine.name}: this release accepts {', '.join(new)}, which nobody has reviewed "
                f"(`conformance show coverage --engine {engine.name}`)"
            )
    return tuple(found)
