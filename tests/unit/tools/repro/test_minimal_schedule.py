"""Schedules made smaller."""

import itertools

from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Arrival, Media, Removal, Request, Schedule, Trigger, Weigh
from conformance.core.token_choice import Sampler
from conformance.tools.repro.minimal_schedule import candidates, smallest


def schedule(*requests, **more):
    return Schedule("big", (Arrival(requests),), **more)


def lengths(found):
    return sorted(len(request.prompt) for request in found.requests)


BIG = schedule(
    *(Request(f"r{n}", tuple(range(1, n + 1)), 5) for n in (23, 11, 5, 2, 7, 13)),
    options=EngineOptions(prefill_step_size=4),
    weigh=Weigh.GRAPH,
)


def padded(found):
    return len(set(lengths(found))) > 1


def test_the_smallest_that_has_padding_has_two_rows_of_one_and_two_tokens():
    found, tried = smallest(BIG, padded, seconds=10)
    assert lengths(found) == [1, 2]
    assert {request.max_tokens for request in found.requests} == {1}
    assert found.options == EngineOptions()
    assert found.weigh is None
    assert tried < 60


def test_what_it_gives_fails_even_when_time_is_up():
    found, tried = smallest(BIG, padded, seconds=0)
    assert (found, tried) == (BIG, 0)


def test_what_decides_stays():
    def late(found):
        return any(arrival.when.count >= 3 for arrival in found.arrivals) and any(
            removal.when.count > 1 for removal in found.removals
        )

    big = Schedule(
        "late",
        (Arrival((Request("a", (1, 2), 5),)), Arrival((Request("b", (3,), 2),), Trigger(count=6))),
        (Removal(("a",), Trigger(count=9)),),
    )
    found, _ = smallest(big, late, seconds=10)
    assert sorted(arrival.when.count for arrival in found.arrivals) == [0, 3]
    assert [removal.when.count for removal in found.removals] == [2]


def test_ingredients_of_a_request_go_one_by_one():
    big = schedule(Request("a", (1, 2), 5, sampler=Sampler("seeded"), stop=((3,),)))
    found, _ = smallest(big, lambda s: s.requests[0].sampler is not None, seconds=10)
    assert found.requests[0].sampler is not None
    assert found.requests[0].stop == ()


def test_a_medium_is_never_cut():
    image = Media("image", (8, 8), span=(2, 5))
    big = schedule(Request("a", (1, 2, 9, 9, 9, 3, 4, 5), 4, media=(image,)))
    found, _ = smallest(big, lambda _: True, seconds=10)
    assert found.requests[0].prompt == (1, 2, 9, 9, 9)


def test_every_candidate_is_another_schedule():
    for candidate in itertools.islice(candidates(BIG), 100):
        assert candidate != BIG
