"""What is right stays unaccused; what is wrong is found and made small, the same each time."""

import msgspec
import pytest

from conformance.core.schedule import validate
from conformance.core.verdict import Verdict
from conformance.run.runner import step_bound
from conformance.tools.explore import hunting
from conformance.tools.explore.hunting import explore
from conformance.tools.explore.results import Maker

# What a wrong engine needs at least: requests, and removals with further arrivals.
WRONG = {
    "LosesFirstToken": (2, 2),
    "YieldsAfterFinish": (2, 1),
    "YieldsAfterRemoval": (1, 2),
    "CallsEveryEndStop": (1, 1),
    "HidesLogprobs": (2, 1),
    "AttendsToPadding": (2, 1),
    "JoinsOneOff": (2, 2),
    "FallsOverTwo": (2, 1),
}


def test_a_right_engine_is_not_accused(registry, unit):
    found = explore(registry, unit(examples=160))
    assert found.discoveries == ()
    assert found.examples == 160
    assert 0 < found.programs < 160
    assert found.unsteady == found.again == 0
    assert len(found.rates) >= 1


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_engine_is_found_and_its_schedule_made_small(registry, unit, name):
    found = explore(registry, unit(name, examples=200)).discoveries[0]
    requests, events = WRONG[name]
    schedule = validate(found.schedule)
    assert len(schedule.requests) <= requests
    assert len(schedule.arrivals) + len(schedule.removals) <= events
    assert step_bound(schedule) <= step_bound(found.found)
    assert found.reproduced


def test_equal_seeds_make_equal_schedules(registry, unit):
    one, other = (explore(registry, unit("JoinsOneOff", examples=80)) for _ in range(2))
    assert one.pairs == other.pairs
    assert one.witnesses == other.witnesses
    assert [d.found for d in one.discoveries] == [d.found for d in other.discoveries]


def test_other_seeds_make_others(registry, unit):
    one = explore(registry, unit(examples=80))
    other = explore(registry, msgspec.structs.replace(unit(examples=80), seed=1))
    assert one.pairs != other.pairs


def test_time_ends_it(registry, unit):
    found = explore(registry, unit(examples=10**6, seconds=0.5))
    assert 0 < found.examples < 10**6
    assert 0.5 <= found.wall < 5
    assert 0 <= found.outside <= 1


def test_a_defect_of_one_kind_is_reported_once(registry, unit):
    found = explore(registry, unit("FallsOverTwo", examples=90))
    assert [d.verdict for d in found.discoveries] == [Verdict.CRASH]
    assert found.again > 0


def test_a_known_verdict_is_counted_not_reported(registry, unit):
    found = explore(registry, unit("FallsOverTwo", known=(Verdict.CRASH,)))
    assert found.discoveries == ()
    assert found.again > 0


def test_what_the_engine_refuses_is_counted_and_no_finding(registry, unit):
    found = explore(registry, unit("RefusesTwo"))
    assert found.discoveries == ()
    assert found.refused > 0


def test_a_fault_is_found_where_it_is_and_nothing_else(registry, unit):
    (found,) = explore(registry, unit(fault="right/B1.lost", examples=200)).discoveries
    assert len(found.schedule.requests) == 2


def test_the_machine_finds_too(registry, unit, monkeypatch):
    monkeypatch.setattr(hunting, "MACHINES", 1)
    found = explore(registry, unit("YieldsForAStranger", examples=40)).discoveries[0]
    assert found.maker is Maker.MACHINE
    assert found.verdict is Verdict.PROTOCOL
    assert len(found.schedule.requests) == 2
    assert len(found.schedule.removals) == 1


def test_workloads_are_drawn_and_found_wrong(registry, unit, monkeypatch):
    monkeypatch.setattr(hunting.Hunt, "_maker", lambda hunt, _: hunt._workloads)
    assert explore(registry, unit(examples=16)).discoveries == ()
    found = explore(registry, unit("AttendsToPadding", examples=16)).discoveries[0]
    assert found.maker is Maker.WORKLOADS
    assert len(found.found.requests) >= 8
    assert len(found.schedule.requests) == 2


@pytest.mark.parametrize("family", ["curt", "brittle"])
def test_a_workload_with_a_row_that_fails_alone_is_no_crash_of_the_tool(
    registry, unit, monkeypatch, family
):
    monkeypatch.setattr(hunting.Hunt, "_maker", lambda hunt, _: hunt._workloads)
    found = explore(registry, unit(family=family, examples=8))
    assert bool(found.refused) == (family == "curt")
    assert bool(found.discoveries) == (family == "brittle")


@pytest.mark.parametrize(
    ("family", "why", "bad"),
    [
        ("torn", "weights are missing", True),
        ("broken", "cannot be broadcast", True),
        ("beyond", "not supported", False),  # the library refuses to load it
        ("dumb", "No Metal back-end", False),  # or to decode it here
    ],
)
def test_a_model_that_cannot_be_used_is_reported_and_bad_unless_refused(
    registry, unit, family, why, bad
):
    found = explore(registry, unit(family=family))
    assert why in (found.failed if bad else found.unsupported)
    assert found.bad == bad
    assert found.examples == 0


@pytest.mark.parametrize("machines", [1, 1000])
def test_a_request_that_the_library_refuses_alone_is_counted(registry, unit, monkeypatch, machines):
    monkeypatch.setattr(hunting, "MACHINES", machines)
    found = explore(registry, unit(family="curt", examples=30))
    assert found.discoveries == ()
    assert found.refused > 0


@pytest.mark.parametrize("machines", [1, 1000])
def test_a_request_that_fails_alone_is_found(registry, unit, monkeypatch, machines):
    monkeypatch.setattr(hunting, "MACHINES", machines)
    found = explore(registry, unit(family="brittle", examples=30)).discoveries[0]
    assert found.verdict is Verdict.CRASH
    assert "cannot be broadcast" in found.what
    assert len(found.schedule.requests) == 1
