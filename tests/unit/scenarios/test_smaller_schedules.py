"""Schedules get as small as what they must show allows, and stay valid."""

import msgspec
import pytest

from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import (
    Arrival,
    Continuation,
    Media,
    Probe,
    Removal,
    Request,
    Schedule,
    Trigger,
    Weigh,
    validate,
)
from conformance.core.token_choice import Sampler
from conformance.scenarios.build import gone, produced
from conformance.scenarios.minimizing import End
from conformance.scenarios.smaller_schedules import size, smallest, without


def asked(name, length=8, max_tokens=5, **more):
    return Request(name, tuple(range(length)), max_tokens, **more)


LARGE = Schedule(
    "large",
    (
        Arrival((asked("a"), asked("b", sampler=Sampler("seeded")), asked("c", segments=(3, 5)))),
        Arrival((asked("d", continues=Continuation("a")),), gone("a")),
        Arrival((asked("e", stop=((1, 2),)),), Trigger(count=4)),
    ),
    (Removal(("b",), produced("b", 2)), Removal(("c",), produced("a", 1))),
    options=EngineOptions(prefill_step_size=4, completion_batch_size=2),
)


def in_time(schedule, holds):
    found = smallest(schedule, holds, seconds=30)
    assert found.end is End.SMALLEST
    return found.value


def test_what_always_holds_ends_in_one_token_each():
    least = in_time(LARGE, lambda schedule: True)
    assert size(least) == (1, 1, 0, 0, 1, 1, 0, 1)
    assert least.options == EngineOptions()


@pytest.mark.parametrize(
    ("holds", "least"),
    [
        (lambda s: len(s.requests) > 1, (2, 1, 0, 0, 2, 2, 0, 1)),
        (lambda s: any(r.sampler for r in s.requests), (1, 1, 1, 0, 1, 1, 0, 1)),
        (lambda s: bool(s.removals), (1, 2, 0, 0, 1, 1, 0, 1)),
        (lambda s: s.options.completion_batch_size == 2, (1, 1, 1, 0, 1, 1, 0, 1)),
        (lambda s: any(r.continues for r in s.requests), (2, 1, 1, 0, 2, 2, 0, 1)),
        (lambda s: any(len(r.prompt) > 5 for r in s.requests), (1, 1, 0, 0, 6, 1, 0, 1)),
        (lambda s: sum(r.max_tokens for r in s.requests) > 6, (2, 1, 0, 0, 2, 7, 0, 1)),
        (lambda s: any(a.when.count > 1 for a in s.arrivals), (1, 1, 0, 0, 1, 1, 2, 1)),
        (
            lambda s: all(len(r.prompt) % 2 for r in s.requests) and len(s.requests) > 1,
            (2, 1, 0, 0, 2, 2, 0, 1),
        ),
    ],
)
def test_what_is_needed_stays_and_nothing_else(holds, least):
    assert size(in_time(LARGE, holds)) == least


def test_lengths_that_must_differ_are_cut_together():
    whole = Schedule("whole", (Arrival((asked("a", 9), asked("b", 8))),))
    least = in_time(whole, lambda s: len({len(r.prompt) % 2 for r in s.requests}) > 1)
    assert size(least)[4] == 3


def test_padding_needs_two_rows_of_one_and_two_tokens():
    lengths = (23, 11, 5, 2, 7, 13)
    rows = tuple(asked(f"r{length}", length) for length in lengths)
    options = EngineOptions(prefill_step_size=4)
    whole = Schedule("whole", (Arrival(rows),), options=options, weigh=Weigh.GRAPH)
    found = smallest(whole, lambda s: len({len(r.prompt) for r in s.requests}) > 1, seconds=30)
    assert size(found.value) == (2, 1, 0, 0, 3, 2, 0, 2)
    assert found.tried < 60


def test_fewer_suffice_where_one_may_come_later():
    whole = Schedule("whole", (Arrival((asked("a"), asked("b"), asked("c"))),))
    late = in_time(whole, lambda s: len(s.requests) > 2 or any(a.when.count for a in s.arrivals))
    assert len(late.requests) == 1


def test_prompts_are_the_same_where_they_may_be():
    rows = (Request("a", (1, 2), 1), Request("b", (3, 4), 1))
    least = in_time(
        Schedule("whole", (Arrival(rows),)),
        lambda s: [len(r.prompt) for r in s.requests] == [2, 2],
    )
    assert len({request.prompt for request in least.requests}) == 1


def test_moments_that_decide_stay():
    def late(schedule):
        return any(a.when.count >= 3 for a in schedule.arrivals) and any(
            r.when.count > 1 for r in schedule.removals
        )

    arrivals = (Arrival((asked("a"),)), Arrival((asked("b"),), Trigger(count=6)))
    least = in_time(Schedule("late", arrivals, (Removal(("a",), Trigger(count=9)),)), late)
    assert [arrival.when.count for arrival in least.arrivals] == [0, 3]
    assert [removal.when.count for removal in least.removals] == [2]


def test_invalid_calls_go_unless_they_are_needed():
    probes = (Probe("one", Trigger(count=2)), Probe("other", Trigger(count=3)))
    whole = Schedule("whole", (Arrival((asked("a"),)),), probes=probes)
    least = in_time(whole, lambda s: any(p.kind == "other" for p in s.probes))
    assert least.probes == (Probe("other", Trigger()),)


def test_a_medium_is_never_cut():
    image = Media("image", (8, 8), span=(2, 5))
    prompt = (1, 2, 9, 9, 9, 3, 4, 5)
    whole = Schedule("whole", (Arrival((Request("a", prompt, 4, media=(image,)),)),))
    assert in_time(whole, lambda _: True).requests[0].prompt == (1, 2, 9, 9, 9)


def test_only_valid_schedules_are_tried():
    def holds(schedule):
        validate(schedule)
        return "d" in {request.request_id for request in schedule.requests}

    assert len(in_time(LARGE, holds).requests) == 1


def test_what_hung_on_a_request_goes_with_it():
    less = without(LARGE, "a")
    validate(less)
    assert less.request("d").continues is None
    assert less.removals[1].when == Trigger()
    assert without(LARGE, "b").removals == LARGE.removals[1:]


def test_what_came_late_comes_at_once_and_stays_longer():
    late = Arrival((asked("b", 1, 1),), gone("a"))
    whole = Schedule("whole", (Arrival((asked("a", 1, 1),)), late))

    def holds(schedule):
        if len(schedule.requests) < 2:
            return False
        one, other = schedule.requests
        return len(schedule.arrivals) == 2 or other.max_tokens > one.max_tokens

    assert size(in_time(whole, holds)) == (2, 1, 0, 0, 2, 3, 0, 1)


def test_ingredients_that_hide_it_alone_go_together():
    more = {"stop": ((1, 2),), "sampler": Sampler("seeded")}
    whole = Schedule("whole", (Arrival((asked("a", **more), asked("b", **more))),))

    def alike(schedule):
        sampled = [r for r in schedule.requests if r.sampler]
        return len(sampled) == 2 and len({bool(r.stop) for r in sampled}) == 1

    least = in_time(whole, alike)
    assert not any(request.stop for request in least.requests)
    assert msgspec.json.encode(least)
