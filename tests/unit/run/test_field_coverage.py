"""A field is set if requests next to each other have two values of it; others are accounted for."""

import msgspec
import pytest
from miniatures.library import family
from miniatures.right import ContinuousBatching
from miniatures.sessions import toy_registry

from conformance.core.accepted_fields import Passed
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Arrival, Request, Schedule, Stage, Trigger
from conformance.run.field_coverage import (
    FieldState,
    Reviewed,
    State,
    covered,
    known_fields,
    new_fields,
    reviewed_entries,
    stale,
    states_of,
    values_together,
)
from conformance.scenarios import LADDER

ONE, TWO = (Request(name, (1, 2), 3) for name in "ab")


def schedule(stage, **more):
    when = Trigger("a", stage)
    return Schedule("two", (Arrival((ONE,)), Arrival((TWO,), when)), **more)


def passed(*values):
    return [Passed("insert", "sampler", value, index) for index, value in enumerate(values)]


@pytest.mark.parametrize("stage", [Stage.QUEUED, Stage.PREFILL, Stage.DECODE])
def test_two_values_beside_each_other(stage):
    assert values_together(schedule(stage), passed("x", "y")) == {("insert", "sampler"): ("x", "y")}
    assert values_together(schedule(stage), passed("x", "x")) == {}


def test_two_values_one_after_the_other_are_not():
    assert values_together(schedule(Stage.FINISHED), passed("x", "y")) == {}


ACCEPTED = {"insert": ("sampler", "stream", "novel")}
ENTRIES = (Reviewed("mine", "insert", ("str*", "sampler"), "no row depends on it"),)


def test_a_field_is_set_reviewed_or_a_gap():
    found = list(states_of("mine", ACCEPTED, {("insert", "sampler"): "there"}, ENTRIES))
    assert found == [
        FieldState("mine", "insert", "sampler", State.SET, "there"),
        FieldState("mine", "insert", "stream", State.REVIEWED, "no row depends on it"),
        FieldState("mine", "insert", "novel", State.GAP),
    ]


def test_an_entry_for_what_is_set_or_gone_is_out_of_date():
    states = list(states_of("mine", ACCEPTED, {("insert", "sampler"): "there"}, ENTRIES))
    (sentence,) = stale(states, ENTRIES)
    assert "sampler (insert, mine) is set" in sentence
    other = (Reviewed("another", "insert", ("gone",), "it is of another engine"),)
    assert stale(states, other) == ()


class Counting(ContinuousBatching):
    """Passes a limit for each request, and a number of slots for all."""

    @classmethod
    def accepted(cls):
        return {"insert": ("limit", "seed"), "made": ("slots", "step", "kind")}

    @classmethod
    def passed(cls, model, schedule):
        options = schedule.options
        found = [Passed("made", "slots", str(options.completion_batch_size))]
        found += [
            Passed("made", "step", str(options.prefill_step_size)),
            Passed("made", "kind", ""),
        ]
        for index, arrival in enumerate(schedule.arrivals):
            for request in arrival.requests:
                found.append(Passed("insert", "limit", str(request.max_tokens), index))
                found.append(Passed("insert", "seed", "0", index))
        return found


def states(kind):
    registry = toy_registry({"mine": kind}, families=[family()], scenarios=LADDER)
    return {(one.place, one.field): one for one in covered(registry, ["mine"])}


def test_the_real_schedules_set_what_an_adapter_passes():
    found = states(Counting)
    assert found["insert", "limit"].state is State.SET
    assert found["insert", "limit"].why == "toy/staggered/short_into_long: 7 and 5"
    assert found["made", "slots"].state is State.SET
    assert found["made", "step"].state is State.SET
    assert found["insert", "seed"].state is State.GAP
    assert found["made", "kind"].state is State.GAP


def test_an_adapter_that_drops_a_field_has_a_gap():
    class Dropping(Counting):
        @classmethod
        def passed(cls, model, schedule):
            one = msgspec.structs.replace(schedule, options=EngineOptions())
            limits = {"limit": "5"}
            return [
                Passed(p.place, p.name, limits.get(p.name, p.value), p.arrival)
                for p in super().passed(model, one)
            ]

    found = states(Dropping)
    assert {one.state for one in found.values()} == {State.GAP}


def test_an_engine_that_says_nothing_has_no_fields():
    assert states(ContinuousBatching) == {}


@pytest.mark.parametrize("place", ["insert", "another function"])
def test_a_field_of_a_newer_release_is_named(place):
    accepted = {**Counting.accepted(), place: (*Counting.accepted().get(place, ()), "novel")}
    newer = type(
        "Newer", (Counting,), {"name": "mine", "accepted": classmethod(lambda _: accepted)}
    )
    (sentence,) = new_fields([newer], {"mine": Counting.accepted()})
    assert f"novel ({place})" in sentence
    assert "limit" not in sentence.replace(f"novel ({place})", "")
    assert new_fields([newer], {"mine": accepted}) == ()
    assert new_fields([newer], {}) == ()  # nobody has reviewed any of this engine


def test_the_installed_lists_can_be_read():
    assert "samplers" in known_fields()["mlx_lm"]["BatchGenerator.insert"]
    assert all(entry.reason.endswith(".") for entry in reviewed_entries())
