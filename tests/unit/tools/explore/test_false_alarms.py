"""Random schedules: decided by the seed, of every feature, judged as all others."""

import pytest
from miniatures.library import ToyLibrary
from miniatures.model import VOCAB
from miniatures.right import ContinuousBatching
from miniatures.wrong import JoinsOneOff

from conformance.core.errors import ModelError, Unsupported
from conformance.core.family import Facts, Family
from conformance.core.schedule import from_json, to_json
from conformance.core.verdict import CaseId
from conformance.run.judging.judge import brief_for
from conformance.run.registry import Registry
from conformance.run.session import Session
from conformance.tools.explore.false_alarms import (
    LEAST_ROWS,
    MOST_ROWS,
    AlarmResult,
    AlarmUnit,
    Allotment,
    play_random,
    random_schedule,
)


class Broken(ToyLibrary):
    """Cannot load some families."""

    def load(self, family, *, dtype, seed):
        if family.name == "beyond":
            raise Unsupported("model type beyond is not supported")
        if family.name == "torn":
            raise ModelError("weights are missing")
        return super().load(family, dtype=dtype, seed=seed)


class Refuses(ContinuousBatching):
    """Says in its own words that it cannot batch."""

    def step(self):
        raise Unsupported("batching is not supported for this cache")


class RefusesTwoSlots(ContinuousBatching):
    """Says so of schedules with two slots, and plays the others."""

    def step(self):
        if self.options.completion_batch_size == 2:
            raise Unsupported("two slots are not supported")
        return super().step()


@pytest.fixture(scope="module")
def registry():
    names = ("calm", "beyond", "torn")
    kinds = (ContinuousBatching, JoinsOneOff, Refuses, RefusesTwoSlots)
    return Registry(
        libraries={"toy": Broken()},
        families={
            ("toy", n): Family(n, Facts(library="toy"), {"vocab_size": VOCAB}) for n in names
        },
        engines={kind.__name__: kind for kind in kinds},
        scenarios={},
        faults={},
        plugins=(),
    )


def unit(engine=ContinuousBatching, family="calm", rows=60):
    return AlarmUnit(engine.__name__, family, "float32", 0, rows)


@pytest.fixture(scope="module")
def brief(registry):
    case = CaseId("ContinuousBatching", "calm", "random", "float32", 0)
    return brief_for(Session(registry).subject(case), ContinuousBatching, 0)


def test_a_right_engine_raises_no_alarm(registry):
    found = play_random(registry, unit())
    assert found.rows >= 60
    assert found.schedules > 5
    assert found.alarms == ()


def test_a_wrong_engine_does_and_the_schedule_can_be_played_again(registry):
    found = play_random(registry, unit(JoinsOneOff))
    assert {alarm.verdict for alarm in found.alarms} & {"drift", "diverged"}
    schedule = found.alarms[0].schedule
    assert from_json(to_json(schedule)) == schedule


def test_what_a_library_refuses_is_no_alarm(registry):
    found = play_random(registry, unit(family="beyond"))
    assert "is not supported" in found.unsupported
    assert found == AlarmResult(found.unit, unsupported=found.unsupported)


def test_what_an_engine_refuses_is_no_alarm(registry):
    found = play_random(registry, unit(Refuses))
    assert "not supported" in found.unsupported
    assert found.alarms == ()


def test_rows_that_were_judged_before_a_refusal_count(registry):
    found = play_random(registry, unit(RefusesTwoSlots, rows=500))
    assert "not supported" in found.unsupported
    assert 0 < found.schedules <= found.rows < 500


def test_a_model_that_cannot_be_loaded_is_one(registry):
    (alarm,) = play_random(registry, unit(family="torn")).alarms
    assert alarm.verdict == "crash"
    assert "weights are missing" in alarm.what


def test_schedules_are_decided_by_their_number(brief):
    assert random_schedule(brief, 5) == random_schedule(brief, 5)
    assert random_schedule(brief, 5) != random_schedule(brief, 6)


def test_schedules_have_every_feature(brief):
    made = [random_schedule(brief, index) for index in range(60)]
    requests = [request for schedule in made for request in schedule.requests]
    assert any(len(schedule.arrivals) > 1 for schedule in made)
    assert any(schedule.removals for schedule in made)
    assert any(schedule.options.prefill_step_size < 100 for schedule in made)
    assert any(schedule.options.completion_batch_size < 8 for schedule in made)
    assert any(request.sampler for request in requests)
    assert any(request.processors for request in requests)
    assert any(request.stop for request in requests)


WAYS = [("e", family, dtype) for dtype in ("float32", "float16") for family in "abcd"]
REFUSED = {("e", "a", "float16"), ("e", "c", "float16")}


def way_of(unit):
    return unit.engine, unit.family, unit.dtype


def played(allotment, *, refused=(), most=50):
    """Plays all that is drawn; a unit ends with the first schedule that is beyond its rows."""
    done = []
    for _ in range(most):
        units = allotment.units()
        if not units:
            return done
        for unit in units:
            rows = 0 if way_of(unit) in refused else unit.rows + 2
            done.append(AlarmResult(unit, rows=rows, unsupported="" if rows else "no kernel"))
            allotment.take(done[-1])
    raise AssertionError("it never ends")


@pytest.mark.parametrize("cases", [1, 60, 1000, 20_000])
@pytest.mark.parametrize("refused", [set(), REFUSED, set(WAYS[1:])], ids=len)
def test_as_many_rows_are_judged_as_asked_for(cases, refused):
    allotment = Allotment(WAYS, cases, seed=0)
    played(allotment, refused=refused)
    assert allotment.complete
    assert cases <= allotment.rows < cases + 2 * MOST_ROWS * len(WAYS)


def test_what_was_refused_is_not_drawn_again():
    done = played(Allotment(WAYS, 5000, seed=0), refused=REFUSED)
    last = [way_of(item.unit) for item in done[-4:]]
    assert not REFUSED & set(last)


def test_where_all_is_refused_it_ends_and_is_not_complete():
    allotment = Allotment(WAYS, 100, seed=0)
    done = played(allotment, refused=set(WAYS))
    assert {way_of(item.unit) for item in done} == set(WAYS)
    assert not allotment.complete


def test_who_plays_some_rows_and_then_refuses_is_counted_and_not_drawn_again():
    allotment = Allotment(WAYS[:1], 100, seed=0)
    (first, *_) = allotment.units()
    allotment.take(AlarmResult(first, rows=10, unsupported="no kernel"))
    assert allotment.rows == 10
    assert allotment.units() == []


def test_no_schedule_is_drawn_twice():
    done = played(Allotment(WAYS, 5000, seed=0))
    for way in WAYS:
        numbers = [
            number
            for item in done
            if way_of(item.unit) == way
            for number in range(item.unit.first, item.unit.first + item.unit.rows)
        ]
        assert len(set(numbers)) == len(numbers)


def test_few_rows_are_spread_over_dtypes_too_and_units_stay_small():
    units = Allotment(WAYS, 4 * LEAST_ROWS, seed=0).units()
    assert len(units) == 4
    assert len({unit.dtype for unit in units}) == 2
    assert {unit.rows for unit in units} == {LEAST_ROWS}
    assert {unit.rows for unit in Allotment(WAYS, 100_000, seed=0).units()} == {MOST_ROWS}


def test_the_seed_decides_the_order():
    one, same, other = (Allotment(WAYS, 100, seed=seed).units() for seed in (0, 0, 1))
    assert one == same
    assert [way_of(unit) for unit in one] != [way_of(unit) for unit in other]
