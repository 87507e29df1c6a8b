"""Schedules without one of their ingredients."""

import pytest

from conformance.core.engine_options import EngineOptions, KvQuant
from conformance.core.schedule import (
    Arrival,
    Continuation,
    Media,
    Removal,
    Request,
    Schedule,
    Stage,
    Trigger,
    validate,
)
from conformance.core.token_choice import Sampler
from conformance.core.verdict import Finding, Verdict
from conformance.tools.explain.ingredients import first_failing, switches, without

LATE = Trigger("a", Stage.DECODE, 2)


def request(name, length=6, **more):
    """A request of ``length`` tokens."""
    return Request(name, tuple(range(1, length + 1)), more.pop("max_tokens", 4), **more)


def off(name, schedule, *, failing=None, window=None):
    """The schedule without that ingredient."""
    found = {s.name: s for s in switches(schedule, failing=failing, window=window)}
    return validate(found[name].off(schedule))


def names(schedule, *, failing=None, window=None):
    """The ingredients that the schedule has."""
    return {s.name for s in switches(schedule, failing=failing, window=window)}


RICH = Schedule(
    "rich",
    (
        Arrival((request("a"), request("b", 9, max_tokens=2, stop=((3,),)))),
        Arrival((request("c", 3, sampler=Sampler("library", {"temp": 1.0})),), LATE),
    ),
    removals=(Removal(("b",), LATE),),
    options=EngineOptions(prefill_step_size=4, completion_batch_size=2, kv=KvQuant(4)),
)


def test_a_plain_request_has_no_ingredient():
    assert names(Schedule("plain", (Arrival((request("a"),)),))) == set()


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("padding", lambda s: {len(r.prompt) for r in s.requests} == {3}),
        ("join", lambda s: len(s.arrivals) == 1 and len(s.requests) == 3),
        ("removal", lambda s: not s.removals),
        ("chunks", lambda s: s.options.prefill_step_size > 9),
        ("waiting for a slot", lambda s: s.options.completion_batch_size == 3),
        ("quantization", lambda s: s.options.kv is None),
        ("leaving early", lambda s: {r.max_tokens for r in s.requests} == {4}),
        ("samplers", lambda s: all(r.sampler is None for r in s.requests)),
        ("stop sequences", lambda s: not any(r.stop for r in s.requests)),
    ],
)
def test_only_that_ingredient_is_off(name, rest):
    assert not rest(RICH)
    changed = off(name, RICH)
    assert rest(changed)
    assert name not in names(changed)
    assert names(RICH) - names(changed) <= {name, "neighbours' content"}


def test_neighbours_get_the_tokens_of_the_failing_request():
    odd = Request("odd", (50, 51), 4)
    schedule = Schedule("s", (Arrival((request("a", 5), odd)),))
    changed = off("neighbours' content", schedule, failing="odd")
    assert changed.request("a").prompt == (50, 51, 50, 51, 50)
    assert changed.request("odd") == odd


def test_the_failing_request_alone():
    changed = off("batch", RICH, failing="c")
    assert [r.request_id for r in changed.requests] == ["c"]
    assert changed.arrivals[0].when == Trigger()
    assert not changed.removals


def test_a_request_alone_keeps_those_that_it_continues():
    more = request("more", continues=Continuation("a"))
    when = Trigger("a", Stage.FINISHED)
    schedule = Schedule("s", (Arrival((request("a"), request("b"))), Arrival((more,), when)))
    changed = off("batch", schedule, failing="more")
    assert [r.request_id for r in changed.requests] == ["a", "more"]
    assert changed.arrivals[1].when == when


def test_all_fits_into_the_window():
    changed = off("window", RICH, window=6)
    assert all(len(r.prompt) + r.max_tokens < 6 for r in changed.requests)
    assert "window" not in names(RICH, window=100)


def test_media_are_not_cut():
    image = request("i", media=(Media("image", (2, 2), span=(1, 3)),))
    schedule = Schedule("s", (Arrival((image, request("t", 9))),))
    assert names(schedule, window=4) == {"batch"}


def test_several_at_once():
    every = switches(RICH, failing=None, window=None)
    chosen = [s for s in every if s.name in ("join", "padding")]
    changed = without(RICH, chosen)
    assert names(RICH) - names(changed) >= {"join", "padding"}


SCHEDULES = [Schedule(name, ()) for name in ("first", "second")]


def finding(schedule, verdict=Verdict.DRIFT, step=None):
    """What some check saw."""
    return Finding(verdict, "check", "", schedule=schedule, step=step)


@pytest.mark.parametrize(
    ("findings", "wrong", "chosen"),
    [
        ([finding("first"), finding("second", Verdict.CRASH)], (), "second"),
        ([finding("first"), finding("second", Verdict.CRASH)], ("second",), "first"),
        ([finding("second")], ("second",), "second"),
        ([finding("first"), finding("second", step=1)], (), "second"),
        ([finding("first", Verdict.POLICY), finding("second")], (), "second"),
    ],
)
def test_the_worst_that_is_right_without_the_fault(findings, wrong, chosen):
    schedule, _ = first_failing(SCHEDULES, findings, wrong)
    assert schedule.name == chosen


def test_of_what_accuses_nobody_nothing_is_taken_apart():
    assert first_failing(SCHEDULES, [finding("first", Verdict.EXACT)]) is None
