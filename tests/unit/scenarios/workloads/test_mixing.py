"""Workloads: no two rows alike, the same for the same seed, ends that are meant."""

import dataclasses
from collections import Counter

import pytest
from miniatures.library import subject
from miniatures.right import ContinuousBatching

from conformance.checks.expectations.loading import load_expectations
from conformance.core.engine import Capability
from conformance.core.trace import FinishReason
from conformance.run.judging.judge import brief_for
from conformance.run.registry import build_registry
from conformance.scenarios import LADDER
from conformance.scenarios.workloads import is_workload
from conformance.scenarios.workloads.marathon import MARATHON
from conformance.scenarios.workloads.traffic import TRAFFIC
from conformance.scenarios.workloads.traffic_options import TRAFFIC_OPTIONS

BOTH = [TRAFFIC, TRAFFIC_OPTIONS]
# These are not mixed: each row is there for one moment.
MADE = ("lengths_meet", "ended_together", "crowd", "close", "history")


@pytest.fixture(scope="module")
def toy():
    return subject(window=8)


def made(scenario, toy, seed=0, engine=ContinuousBatching):
    return scenario.make(brief_for(toy, engine, seed))


def mixed(scenario, toy, **more):
    return [schedule for schedule in made(scenario, toy, **more) if schedule.name not in MADE]


def test_a_workload_is_known_by_its_name():
    named = [scenario for scenario in LADDER if is_workload(scenario.name)]
    assert {*BOTH, MARATHON} < set(named)
    assert "wide" not in {scenario.name for scenario in named}


@pytest.mark.parametrize("scenario", BOTH, ids=lambda s: s.name)
def test_equal_seeds_make_equal_workloads_and_others_make_others(scenario, toy):
    assert made(scenario, toy) == made(scenario, toy)
    assert made(scenario, toy) != made(scenario, toy, seed=1)


@pytest.mark.parametrize("scenario", BOTH, ids=lambda s: s.name)
def test_no_two_rows_have_a_prompt_in_common(scenario, toy):
    for schedule in made(scenario, toy):
        # Of a crowd some only bring the 65th.
        tiny = 1 if schedule.name == "crowd" else 0
        prompts = [r.prompt for r in schedule.requests if r.max_tokens > tiny]
        assert len(set(prompts)) == len(prompts)


@pytest.mark.parametrize("scenario", BOTH, ids=lambda s: s.name)
def test_prompts_of_one_token_are_among_them_and_limits_are_used_evenly(scenario, toy):
    for schedule in mixed(scenario, toy):
        limits = Counter(request.max_tokens for request in schedule.requests)
        assert min(len(request.prompt) for request in schedule.requests) == 1
        assert limits[1] >= 2
        assert max(limits.values()) <= 6


def test_a_schedule_that_is_not_played_costs_no_single_stream(toy):
    brief = brief_for(toy, ContinuousBatching, 0)

    def asked(*played):
        streams = []

        def solo(request, options):
            streams.append(request)
            return brief.solo(request, options)

        some = dataclasses.replace(brief, solo=solo, plays=lambda name: name in played)
        names = [schedule.name for schedule in TRAFFIC.make(some)]
        assert names == ["few_slots", "many", "lengths_meet"]
        return len(streams)

    assert asked() == 0 < asked("many") < asked("few_slots", "many")


def test_of_a_row_that_ends_early_no_later_token_is_asked_for(toy):
    brief = brief_for(toy, ContinuousBatching, 0)
    asked = {}

    def solo(request, options):
        asked[request.request_id] = request.max_tokens
        return brief.solo(request, options)

    _, many, _ = TRAFFIC.make(dataclasses.replace(brief, solo=solo))
    streams = {r.request_id: brief.solo(r, many.options) for r in many.requests if r.stop}
    ended = [n for n, s in streams.items() if s.finish_reason is FinishReason.STOP and n in asked]
    early = [n for n in ended if len(streams[n].tokens) < many.request(n).max_tokens]
    own = [name for name in early if many.request(name).stop != many.options.stop]
    assert len(own) > 3
    assert all(asked[name] == len(streams[name].tokens) for name in own)


def test_rows_end_by_stops_and_by_limits(toy):
    """By a stop and by the limit; sequences of one token, of two, of more than three."""
    ends, lengths = set(), set()
    for schedule in made(TRAFFIC, toy):
        brief = brief_for(toy, ContinuousBatching, 0)
        for request in schedule.requests:
            stream = brief.solo(request, schedule.options)
            ends.add(stream.finish_reason)
            lengths |= {len(sequence) for sequence in request.stop}
    assert ends == {FinishReason.STOP, FinishReason.LENGTH}
    assert {1, 2} <= lengths
    assert max(lengths) > 3


def test_rows_have_one_stop_sequence_to_many_and_any_of_them_ends_the_row(toy):
    """So an engine that knows the first few of them alone is found."""
    counts, places = set(), set()
    brief = brief_for(toy, ContinuousBatching, 0)
    for schedule in [*made(TRAFFIC, toy), *made(MARATHON, toy)]:
        for request in schedule.requests:
            produced = brief.solo(request, schedule.options).tokens
            ends = [at for at, stop in enumerate(request.stop) if produced[-len(stop) :] == stop]
            counts.add(len(request.stop))
            places |= set(ends)
    assert counts == {0, 1, 2, 3, 4, 5, 6, 71}
    assert places == {0, 1, 2, 3, 4, 5, 70}


def test_rows_of_one_call_have_the_engine_s_own_stops_alone(toy):
    for schedule in mixed(TRAFFIC, toy):
        last = schedule.arrivals[-1].requests
        assert schedule.options.stop
        assert {request.stop for request in last} == {schedule.options.stop}


def test_without_late_joins_all_arrive_at_once_and_none_is_removed(toy):
    least = {Capability.LOGPROBS, Capability.TOGETHER, Capability.SLOTS}
    engine = type("Least", (ContinuousBatching,), {"capabilities": frozenset(least)})
    for schedule in made(TRAFFIC, toy, engine=engine):
        assert len(schedule.arrivals) == 1
        assert schedule.removals == ()
        assert not any(request.stop for request in schedule.requests)


def test_rows_that_others_wait_for_and_those_removed_have_no_stop_that_matches(toy):
    for schedule in made(TRAFFIC, toy):
        brief = brief_for(toy, ContinuousBatching, 0)
        waited = {trigger.when.request_id for trigger in schedule.arrivals[1:]}
        for name in waited | schedule.removed_ids:
            request = schedule.request(name)
            assert len(brief.solo(request, schedule.options).tokens) == request.max_tokens


def test_a_known_defect_without_a_mend_hides_no_workload():
    mended, known = build_registry(), load_expectations()
    hiding = [
        entry.id
        for entry in known.defects
        if entry.anyhow_in("traffic") and mended.mend_of(entry.id) is None
    ]
    assert hiding == []
